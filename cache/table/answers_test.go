package table_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/table"
)

// about has a part on disk and one in memory.
type about struct {
	Tag    string
	memory string
}

type rig struct {
	*table.Answers[about]
	disk *disk
	opts table.AnswersOptions
}

func newRig(tb testing.TB, o table.AnswersOptions) *rig {
	tb.Helper()
	o.Name = "x"
	if o.Bounds == (quota.Bounds{}) {
		o.Bounds = quota.Bounds{Count: 1000, Bytes: 1 << 20}
	}
	r := &rig{disk: newDisk(tb), opts: o}
	r.restart(tb)
	return r
}

func (r *rig) restart(tb testing.TB) {
	tb.Helper()
	a, err := table.OpenAnswers[about](r.disk, r.opts)
	if err != nil {
		tb.Fatal(err)
	}
	a.Evict()
	r.Answers = a
}

func (r *rig) put(user, name, body string) {
	r.Put(r.Table.Key(user, name), table.Answer[about]{User: user, Used: time.Now(), About: about{"tag of " + name, "m"}, Body: []byte(body)})
}

// body returns what is stored, or "none".
func (r *rig) body(user, name string) string {
	answer, ok := r.Get(r.Table.Key(user, name))
	if !ok {
		return "none"
	}
	return string(answer.Body)
}

// stored returns the only value on disk.
func (r *rig) stored(tb testing.TB) string {
	tb.Helper()
	value, err := r.disk.Get("x", r.disk.keys(tb, "x")[0])
	if err != nil {
		tb.Fatal(err)
	}
	return string(value)
}

func TestAnswersSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, table.AnswersOptions{})
		r.put("u", "a", "old")
		r.put("u", "a", "body")
		r.put("u", "b", "")
		r.Table.Put("own", []byte("the owner's"))
		used := time.Now()
		time.Sleep(time.Hour)
		for _, memory := range []string{"m", ""} {
			e := r.Entries[r.Table.Key("u", "a")]
			if e == nil || e.User != "u" || !e.Used.Equal(used) || e.About != (about{"tag of a", memory}) || e.Body != nil {
				t.Errorf("the entry is %+v", e)
			}
			if got := []string{r.body("u", "a"), r.body("u", "b"), r.body("v", "a")}; fmt.Sprint(got) != "[body  none]" {
				t.Errorf("the bodies are %q", got)
			}
			r.restart(t)
		}
		r.Delete(r.Table.Key("u", "a"), r.Table.Key("u", "never there"))
		r.restart(t)
		if own, ok := r.Table.Get("own"); len(r.Entries) != 1 || !ok || string(own) != "the owner's" {
			t.Errorf("after Delete there are %d; the owner's value is %q", len(r.Entries), own)
		}
	})
}

func TestAnAnswerThatStaysTheSameIsWrittenRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, table.AnswersOptions{WriteEvery: 24 * time.Hour})
		r.put("u", "a", "body")
		before := r.stored(t)
		time.Sleep(24*time.Hour - time.Second)
		r.put("u", "a", "body")
		if r.stored(t) != before || !r.Entries[r.Table.Key("u", "a")].Used.Equal(time.Now()) {
			t.Error("written again before a day, or not marked as used")
		}
		time.Sleep(time.Second)
		r.put("u", "a", "body")
		if r.restart(t); !r.Entries[r.Table.Key("u", "a")].Used.Equal(time.Now()) {
			t.Error("not written again after a day")
		}
		r.put("u", "a", "other")
		if r.restart(t); r.body("u", "a") != "other" {
			t.Error("not written when it changed")
		}
	})
}

func TestAnswersAfterTheFileWasReplaced(t *testing.T) {
	r := newRig(t, table.AnswersOptions{WriteEvery: time.Hour})
	r.put("u", "a", "body")
	r.disk.clear(t)
	if r.body("u", "a") != "none" {
		t.Error("there without a file")
	}
	r.put("u", "a", "body")
	if r.restart(t); r.body("u", "a") != "body" {
		t.Error("not written to the new file")
	}
}

func TestDamagedAnswersAreMissing(t *testing.T) {
	var logged bytes.Buffer
	r := newRig(t, table.AnswersOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	r.put("u", "a", "secret")
	whole := r.stored(t)
	r.disk.damage("x", r.disk.keys(t, "x")[0])
	if got := r.body("u", "a"); got != "none" {
		t.Errorf("damaged: %q", got)
	}
	if logged.Len() == 0 || strings.Contains(logged.String(), "secret") {
		t.Errorf("logged: %s", &logged)
	}
	if r.restart(t); len(r.Entries) != 0 {
		t.Errorf("%d after a restart", len(r.Entries))
	}
	for _, value := range []string{"", "\x01", whole[:8], whole[:9], whole[:20], "\x00" + whole[1:], whole[:9] + "\xff" + whole[10:], whole[:10] + "x" + whole[11:]} {
		if err := r.disk.Put(store.Pair{Table: "x", Key: r.Table.Key("u", "a"), Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		if r.restart(t); len(r.Entries) != 0 || len(r.disk.keys(t, "x")) != 0 {
			t.Errorf("read from %q, or left there", value)
		}
	}
	r.put("u", "a", "new")
	if got := r.body("u", "a"); got != "new" {
		t.Errorf("put anew: %q", got)
	}
}

func TestTheLeastRecentlyUsedAnswersAreEvicted(t *testing.T) {
	for name, bounds := range map[string]quota.Bounds{"in number": {Count: 3, Bytes: 1 << 20}, "in bytes": {Count: 100, Bytes: 3500}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, table.AnswersOptions{Bounds: bounds, WriteEvery: time.Hour})
				for i := range 4 {
					r.put("u", fmt.Sprint(i), strings.Repeat("x", 1000))
					time.Sleep(time.Second)
					if i < 3 {
						r.put("u", "0", strings.Repeat("x", 1000))
					}
				}
				for range 2 {
					if len(r.Entries) != 3 || len(r.disk.keys(t, "x")) != 3 || r.body("u", "1") != "none" || r.body("u", "0") == "none" {
						t.Errorf("%d answers, %d on disk", len(r.Entries), len(r.disk.keys(t, "x")))
					}
					r.restart(t)
				}
			})
		})
	}
}

func TestExpiredAnswersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, table.AnswersOptions{Expired: func(used time.Time) bool { return time.Since(used) >= time.Hour }})
		r.put("u", "a", "")
		time.Sleep(time.Hour - time.Second)
		if r.restart(t); len(r.Entries) != 1 {
			t.Error("dropped before its end")
		}
		time.Sleep(time.Second)
		r.put("u", "b", "")
		if len(r.Entries) != 1 || len(r.disk.keys(t, "x")) != 1 || r.body("u", "a") != "none" {
			t.Error("there after its end")
		}
	})
}

// #17: whoever has many answers loses its own. All service accounts of a namespace are one tenant.
func TestAFloodOfAnswersDoesNotEvictOtherUsers(t *testing.T) {
	account := func(namespace string, i int) string {
		return identity.User{Name: fmt.Sprintf("system:serviceaccount:%s:a%d", namespace, i), UID: "1"}.Key()
	}
	r := newRig(t, table.AnswersOptions{Bounds: quota.Bounds{Count: 20, Bytes: 1 << 20}})
	users, names := []string{quota.Node, "victim", account("victims", 1)}, []string{"a", "b", "c"}
	for _, user := range users {
		for _, name := range names {
			r.put(user, name, "body")
		}
	}
	for i := range 30 {
		r.put(account("flood", i), "a", "flood")
		if i == 15 {
			r.restart(t)
		}
	}
	for _, user := range users {
		for _, name := range names {
			if got := r.body(user, name); got != "body" {
				t.Errorf("%s of %s: %s", name, user, got)
			}
		}
	}
	if n := len(r.Entries); n != 20 {
		t.Errorf("%d are left", n)
	}
}
