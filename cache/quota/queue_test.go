package quota

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a queue for one at a time, whose only turn is taken.
type rig struct {
	*Queue
	t     *testing.T
	ended chan string // holds more than any test asks
}

func newRig(t *testing.T, maxWaiting int) *rig {
	q := &rig{NewQueue(1, maxWaiting), t, make(chan string, 100)}
	if err := q.Acquire(t.Context(), "first", "first"); err != nil {
		t.Fatal(err)
	}
	return q
}

// ask has somebody wait who works for no time. path is TENANT/USER.
func (q *rig) ask(ctx context.Context, path string) {
	go func() {
		if err := q.Acquire(ctx, strings.Split(path, "/")...); err != nil {
			q.ended <- path + ": " + err.Error()
			return
		}
		q.ended <- path
		q.Release()
	}()
	synctest.Wait()
}

// all lets all waiting calls proceed, and returns the order in which they ended.
func (q *rig) all() string {
	q.Release()
	synctest.Wait()
	close(q.ended)
	var got []string
	for path := range q.ended {
		got = append(got, path)
	}
	if q.free != 1 || q.root.waiting != 0 || len(q.root.flows) != 0 || len(q.root.order) != 0 {
		q.t.Errorf("afterwards %d are free, and %+v is left", q.free, q.root)
	}
	return strings.Join(got, ", ")
}

func TestTenantsTakeTurnsAndTheirUsersDo(t *testing.T) {
	for name, test := range map[string]struct{ asked, want string }{
		"one after the other": {"a/1 a/1 a/1", "a/1, a/1, a/1"},
		"of two who asks for little does not wait for who asks for much": {"a/1 a/1 a/1 b/1", "a/1, b/1, a/1, a/1"},
		"of a tenant's users neither":                                    {"a/1 a/1 a/1 a/2", "a/1, a/2, a/1, a/1"},
		"nobody waits for all users of a tenant":                         {"a/1 a/2 a/3 a/4 b/1 b/1", "a/1, b/1, a/2, b/1, a/3, a/4"},
		"users of two tenants":                                           {"a/1 a/1 a/2 b/1 b/1 b/2", "a/1, b/1, a/2, b/2, a/1, b/1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newRig(t, 0)
				for path := range strings.FieldsSeq(test.asked) {
					q.ask(t.Context(), path)
				}
				if got := q.all(); got != test.want {
					t.Errorf("the order is %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestWhoLeavesTakesNobodysTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRig(t, 0)
		ctx, leave := context.WithCancelCause(t.Context())
		for _, path := range []string{"a/1", "b/1"} {
			q.ask(ctx, path)
			q.ask(t.Context(), path)
		}
		leave(errors.New("gone"))
		synctest.Wait()
		q.ask(t.Context(), "c/1")
		got := q.all()
		for range 2 { // in either order
			got = strings.Replace(got, "b/1: gone, a/1: gone", "a/1: gone, b/1: gone", 1)
		}
		if want := "a/1: gone, b/1: gone, a/1, b/1, c/1"; got != want {
			t.Errorf("the order is %s, want %s", got, want)
		}
	})
}

// A turn that comes as its waiter leaves is the next one's.
func TestATurnThatNobodyTakesIsGivenOn(t *testing.T) {
	q := NewQueue(1, 0)
	if err := q.Acquire(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	path := []string{"b"}
	w := q.enter(path)
	q.Release()
	q.leave(path, w)
	if err := q.Acquire(t.Context(), "c"); err != nil || q.Waiting() != 0 {
		t.Errorf("%v, and %d wait", err, q.Waiting())
	}
}

func TestWhereTooManyWaitWhoHasTheMostIsTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRig(t, 4)
		for i := range 3 {
			q.ask(t.Context(), fmt.Sprint("flood/", i))
		}
		q.ask(t.Context(), "flood/0")
		for _, path := range []string{"flood/5", "a/1", "b/1"} {
			q.ask(t.Context(), path)
		}
		if n := q.Waiting(); n != 4 {
			t.Errorf("%d wait", n)
		}
		full := ": " + ErrFull.Error()
		want := "flood/0" + full + ", flood/5" + full + ", flood/2" + full + ", flood/0, a/1, b/1, flood/1"
		if got := q.all(); got != want {
			t.Errorf("the order is %s, want %s", got, want)
		}
	})
}
