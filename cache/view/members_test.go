package view

import (
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/wire"
)

func TestAUIDDoesNotComeBack(t *testing.T) {
	v := newPodsView(t)
	fillPods(t, v, "", "100", true, nil)
	v.apply("100", &Event{Namespace: "ns", Name: "a", UID: "its", Version: "105", Object: barePod(t, "a", "105", "its")})
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
			rev := v.index["ns/a"]
			if got := rev.isGone(&state{Gone: test.gone, UID: test.uid}); got != test.want {
				t.Errorf("the copy is of the object that is gone: %v", got)
			}
		})
	}
}

// Two clients read the same pages at the same time. The race detector looks on.
func TestPagesAreKeptWhileAnotherClientReadsThem(t *testing.T) {
	v := newPodsView(t)
	page, other := v.NewBuilder(Began{}, true, wire.Protobuf), v.NewBuilder(Began{}, true, wire.Protobuf)
	defer page.End()
	defer other.End()
	if err := page.Add("ns/p0", "5", "", barePod(t, "p0", "5")); err != nil {
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
			if err := other.Add(fmt.Sprint("ns/p", i), "5", "", o); err != nil {
				t.Error(err)
			}
		}
	})
	g.Wait()
}
