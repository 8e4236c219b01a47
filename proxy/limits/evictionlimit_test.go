package limits

import (
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewEviction(2, time.Second)
		var mu sync.Mutex // evictions run on goroutines of their own
		var cut []string
		join := func(name string) (leave func()) {
			return c.Add(func() {
				mu.Lock()
				defer mu.Unlock()
				cut = append(cut, name)
			})
		}
		want := func(when, names string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(cut, " "); got != names {
				t.Errorf("%s: cut %q, want %q", when, got, names)
			}
		}
		join("a")
		join("b")
		time.Sleep(time.Hour)
		want("as many as may wait, for an hour", "")
		leave := join("c")
		want("one more", "a")
		leave()
		leave()
		join("d")
		want("one has left, and another came", "a")
		join("e")
		join("f")
		want("those who have waited less than the patience", "a b")
		time.Sleep(time.Second)
		synctest.Wait()
		want("the patience is over", "a b d")
		join("g")
		want("one more, of whom the longest has lost patience", "a b d e")
	})
}

// ReverseProxy flushes after a write that failed.
func TestWhoWasCutCountsNoMore(t *testing.T) {
	c := NewEviction(1, 0)
	u := NewResponseWriter(brokenResponse{httptest.NewRecorder()}, c)
	if _, err := u.Write([]byte("a")); err == nil {
		t.Fatal("a write to a broken connection succeeded")
	}
	isCut := false
	defer c.Add(func() { isCut = true })()
	if err := u.FlushError(); err == nil || isCut {
		t.Errorf("flushed what was cut: %v; another was cut for it: %t", err, isCut)
	}
}

// brokenResponse is a response that cannot be written.
type brokenResponse struct{ *httptest.ResponseRecorder }

func (brokenResponse) Write([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// net/http's responses must not be used when their handlers have ended.
func TestAResponseThatHasBeenWrittenIsNotCut(t *testing.T) {
	var cuts int
	u := NewResponseWriter(deadlineResponse{httptest.NewRecorder(), &cuts}, NewEviction(1, 0))
	if _, err := u.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	u.evict()
	if cuts != 0 {
		t.Error("it is cut all the same")
	}
	err := u.wait(func() error { u.evict(); return nil })
	if err != nil || cuts != 1 {
		t.Errorf("one that waits: %v, cut %d times", err, cuts)
	}
}

type deadlineResponse struct {
	*httptest.ResponseRecorder
	cuts *int
}

func (d deadlineResponse) SetWriteDeadline(time.Time) error { *d.cuts++; return nil }
