package log_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/log"
)

// committed counts commits.
type committed struct{ ok, failed int }

func (c *committed) count(_ time.Duration, err error) {
	if err != nil {
		c.failed++
	} else {
		c.ok++
	}
}

// Invariant 24: however many changes there are, the disk syncs at most once a second.
func TestHowSoonChangesAreCommitted(t *testing.T) {
	list := log.Change{Table: "pods", Clear: true, Put: put("", "a", "1", "one").Put}
	for name, tt := range map[string]struct {
		put    func(o *owner)
		within time.Duration
		want   int // commits by then
	}{
		"nothing":                            {func(*owner) {}, time.Hour, 0},
		"a change after an idle second":      {func(o *owner) { o.change(t, put("pods", "a", "1", "one")) }, 150 * time.Millisecond, 1},
		"a list among other changes":         {func(o *owner) { o.change(t, list); every(t, o, 50*time.Millisecond, 10) }, 0, 1},
		"other changes":                      {func(o *owner) { every(t, o, 50*time.Millisecond, 10) }, 0, 0},
		"a minute of 200 changes a second":   {func(o *owner) { every(t, o, 5*time.Millisecond, 60*200) }, 0, 15},
		"what may wait":                      {func(o *owner) { later(t, o) }, 5*time.Minute - time.Second, 0},
		"what has waited":                    {func(o *owner) { later(t, o) }, 5*time.Minute + time.Second, 1},
		"what may wait, with another change": {func(o *owner) { later(t, o); o.change(t, put("pods", "a", "1", "one")) }, 200 * time.Millisecond, 1},
		"what may wait, and is flushed":      {func(o *owner) { later(t, o); o.flush(t) }, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var c committed
				o := open(t, dir, log.Options{Committed: c.count})
				stop := o.run(t)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				c = committed{}
				tt.put(o)
				time.Sleep(tt.within)
				synctest.Wait()
				if c.ok != tt.want {
					t.Errorf("%d commits, want %d", c.ok, tt.want)
				}
				stop()
				want := o.state()
				o = open(t, dir, log.Options{})
				o.mustBeWhole(t, want)
				o.close(t)
			})
		})
	}
}

func every(t *testing.T, o *owner, pause time.Duration, times int) {
	for i := range times {
		o.change(t, put("pods", fmt.Sprint("pod-", i%20), fmt.Sprint(i), fmt.Sprint("version ", i)))
		time.Sleep(pause)
	}
}

func later(t *testing.T, o *owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := put("leases", "n", "1", "renewed")
	o.applyLocked(&c)
	if err := o.log.PutLater(c); err != nil {
		t.Error(err)
	}
}

// A queue that the disk does not empty is bounded. What is given up is empty on disk, and stays so until all of it is put again.
func TestTheLargestTableIsGivenUpIfTheQueueIsFull(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{MaxPending: 100_000})
	o.change(t, put("large", "old", "1", "old"), put("small", "a", "1", text("small", 10_000)))
	o.log.Table("tokens").Put("k", []byte(text("a token", 60_000)))
	o.flush(t)
	o.log.Table("tokens").Put("k", []byte(text("another token", 60_000)))
	o.change(t, put("small", "a", "2", text("small at 2", 10_000)))
	for i := range 10 {
		o.change(t, put("large", fmt.Sprint(i), "1", text(fmt.Sprint("large ", i), 20_000)))
	}
	if !slices.Equal(o.given, []string{"large"}) || o.log.Stats().PendingBytes > 100_000 {
		t.Errorf("%v were given up, and %d bytes wait", o.given, o.log.Stats().PendingBytes)
	}
	o.flush(t)
	o.close(t)
	after := open(t, dir, log.Options{})
	if got := after.state(); len(got["large"]) != 0 || len(got["small"]) != 1 || after.damaged(t) != 0 {
		t.Errorf("on disk there is %v", got)
	}
	if b, ok := after.log.Table("tokens").Get("k"); !ok || string(b) != text("another token", 60_000) {
		t.Error("a value of a table was given up")
	}
	after.change(t, drop("large"), put("large", "new", "1", "new"))
	after.flush(t)
	after.change(t, put("large", "newer", "1", "newer"))
	after.flush(t)
	after.mustBeWhole(t, after.state())
}

func TestWhatIsPutAgainAsAWholeIsNotGivenUpAnyMore(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{MaxPending: 50_000})
	for i := range 10 {
		o.change(t, put("large", fmt.Sprint(i), "1", text(fmt.Sprint("large ", i), 20_000)))
	}
	o.change(t, drop("large"), put("large", "new", "1", "new"))
	o.change(t, put("large", "newer", "1", "newer"))
	o.flush(t)
	want := o.state()
	o.close(t)
	open(t, dir, log.Options{}).mustBeWhole(t, want)
}

// A folder that cannot be opened, as that of a mount that comes late.
func TestAFolderThatAppearsLate(t *testing.T) {
	for name, tt := range map[string]struct {
		hasState bool // by the time that the folder is there
		there    bool // the folder has a file
	}{
		"is read, if memory has nothing":         {false, true},
		"is written from memory, if it has some": {true, true},
		"is written from memory, if it is empty": {true, false},
		"is empty, and so is memory":             {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			synctest.Test(t, func(t *testing.T) {
				keep := log.Options{Keep: []string{"events"}}
				old := open(t, dir, keep)
				old.change(t, put("pods", "old", "1", text("old", 1000)), put("pods", "both", "1", "b"))
				old.log.Table("events").Put("1", []byte(text("an event that was not sent", 500)))
				old.log.Table("answers").Put("1", []byte(text("an answer", 500)))
				salted := old.log.Table("answers").Key("a")
				old.flush(t)
				stored := old.state()
				old.close(t)
				away := dir + ".away"
				if err := errors.Join(os.Rename(dir, away), os.WriteFile(dir, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
				o, err := tryOpen(t, dir, keep)
				if err == nil || !errors.Is(o.log.Trouble(), log.ErrNotOpen) {
					t.Fatalf("got error %v, and trouble %v", err, o.log.Trouble())
				}
				o.full = tt.hasState
				stop := o.run(t)
				if tt.hasState {
					o.change(t, put("pods", "new", "2", text("new", 1000)))
				}
				o.log.Table("events").Put("2", []byte("an event of now"))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(o.attempts) < 3 || slices.Contains(o.attempts, true) {
					t.Errorf("attempts: %v", o.attempts)
				}
				o.mustBeWhole(t, o.state()) // from memory
				if err := os.Remove(dir); err != nil {
					t.Fatal(err)
				}
				if tt.there {
					if err := os.Rename(away, dir); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Minute)
				if err := o.log.Trouble(); err != nil {
					t.Errorf("the folder is there, and %v", err)
				}
				stop()
				want := map[string]map[string]row{}
				switch {
				case tt.hasState:
					want["pods"] = map[string]row{"new": {"2", []log.Sum{log.SumOf([]byte(text("new", 1000)))}}}
				case tt.there:
					want = stored
				}
				again := open(t, dir, keep)
				again.mustBeWhole(t, want)
				wantEvents, wantAnswers := []string{"1", "2"}, 0
				if !tt.there {
					wantEvents = []string{"2"}
				}
				if tt.there && !tt.hasState {
					wantAnswers = 1
				}
				if got := again.log.Table("events").Keys(); !slices.Equal(got, wantEvents) {
					t.Errorf("events %v, want %v", got, wantEvents)
				}
				for _, key := range wantEvents {
					if _, ok := again.log.Table("events").Get(key); !ok {
						t.Errorf("event %s cannot be read", key)
					}
				}
				if got := len(again.log.Table("answers").Keys()); got != wantAnswers {
					t.Errorf("%d answers, want %d", got, wantAnswers)
				}
				if same := again.log.Table("answers").Key("a") == salted; same != (tt.there && !tt.hasState) {
					t.Errorf("the salt is that of the file: %v", same)
				}
				again.close(t)
			})
		})
	}
}
