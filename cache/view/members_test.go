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
			rev, _ := v.get("ns/a")
			if got := rev.isGone(&state{Gone: test.gone, UID: test.uid}); got != test.want {
				t.Errorf("the copy is of the object that is gone: %v", got)
			}
		})
	}
}

func TestASnapshotKeepsItsMembersWhileTheViewChanges(t *testing.T) {
	of := func(members []Member) (s string) {
		for _, m := range members {
			s += m.Name + "=" + m.Version + " "
		}
		return s
	}
	c := newContents([]Member{{"b", Revision{Version: "2"}}, {"a", Revision{Version: "1"}}, {"c", Revision{Version: "3"}}})
	first := c.share()
	c.set("b", Revision{Version: "4"})
	second := c.share()
	c.remove("a")
	c.set("d", Revision{Version: "5"})
	c.set("d", Revision{Version: "6"})
	c.remove("e")
	for _, is := range [][2]string{
		{of(first), "a=1 b=2 c=3 "}, {of(second), "a=1 b=4 c=3 "}, {of(c.members), "b=4 c=3 d=6 "},
	} {
		if is[0] != is[1] {
			t.Errorf("the members are %s, want %s", is[0], is[1])
		}
	}
	if want := newContents(c.members).bytes; c.bytes != want {
		t.Errorf("%d bytes are counted, of %d", c.bytes, want)
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
