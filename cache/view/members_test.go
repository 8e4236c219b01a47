package view

import (
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/store"
)

func TestAUIDDoesNotComeBack(t *testing.T) {
	v := newPodsView(t)
	fillPods(t, v, "", "100", true, nil)
	v.apply("100", &Change{Name: "ns/a", Version: "105", Object: barePod(t, "a", "105", "its")})
	for name, test := range map[string]struct {
		gone string
		uid  types.UID
		want bool
	}{
		"older than the deletion":             {"107", "", true},
		"newer, and the UID is not known":     {"100", "", false},
		"newer, and another object":           {"100", "another", false},
		"a change that came with a delay":     {"100", "its", true},
		"a deletion at the very same version": {"105", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, ok := v.copyOf("ns/a")
			if !ok {
				t.Fatal("there is no copy")
			}
			k := &records.Known{Record: records.Record{Gone: test.gone, UID: test.uid}}
			if got := c.isGone(k); got != test.want {
				t.Errorf("the copy is of the object that is gone: %v", got)
			}
		})
	}
}

// Where it is not known which object has gone, later copies are in doubt.
func TestAPodThatIsGoneAndCannotBeReadLeavesADoubt(t *testing.T) {
	s := newTestViews(t, t.TempDir(), enough)
	v := s.Acquire(keyOfPods(query.NodeUser))
	fillPods(t, v, "", "100", true, nil)
	s.recordDeletions(&Builder{View: v, deleted: map[string]types.UID{"ns/a": ""}, deletedAt: "90"})
	if k := s.Records.Known(v.Key.UserResource(), "ns", "ns/a"); k.Gone != "90" || k.Doubt != "100" {
		t.Errorf("gone at %q, in doubt at %q", k.Gone, k.Doubt)
	}
}

// The view has moved on, or the hub is stopping.
func TestWhatTheViewDoesNotHaveIsNoDamageToIt(t *testing.T) {
	before := store.NewObject("ns/a", "50", barePod(t, "a", "50"))
	for name, fail := range map[string]func(v *View){
		"an object that was replaced": func(v *View) { v.damagedIf("ns/a", entryOf(&before)) },
		"an object that is gone":      func(v *View) { v.damagedIf("ns/b", entryOf(&before)) },
		"a list at an old version":    func(v *View) { _ = v.ReadFailed("100", store.ErrChanged) },
		"a list of a closed store":    func(v *View) { _ = v.ReadFailed("101", store.ErrClosed) },
	} {
		t.Run(name, func(t *testing.T) {
			v := newPodsView(t)
			fillPods(t, v, "", "100", true, map[string]string{"a": "50"})
			v.apply("100", &Change{Name: "ns/a", Version: "101", Object: barePod(t, "a", "101")})
			if fail(v); v.IsDamaged() {
				t.Error("the view counts as damaged")
			}
		})
	}
}

// Two clients read the same pages at the same time. The race detector looks on.
func TestPagesAreKeptWhileAnotherClientReadsThem(t *testing.T) {
	v := newPodsView(t)
	page, other := v.NewBuilder(Began{}, true), v.NewBuilder(Began{}, true)
	defer page.End()
	defer other.End()
	if err := page.Add("ns/p0", "5", barePod(t, "p0", "5")); err != nil {
		t.Fatal(err)
	}
	objects := make([][]byte, 500)
	for i := range objects {
		objects[i] = barePod(t, fmt.Sprint("p", i), "5")
	}
	var g sync.WaitGroup
	g.Go(func() {
		for range objects {
			page.Clone().End()
			page.With(page).End()
		}
	})
	g.Go(func() {
		for i, o := range objects {
			if err := other.Add(fmt.Sprint("ns/p", i), "5", o); err != nil {
				t.Error(err)
			}
		}
	})
	g.Wait()
}
