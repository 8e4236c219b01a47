package cache

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// pod is a bare pod in protobuf.
func pod(t *testing.T, name, version string, uid ...string) []byte {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
	for _, u := range uid {
		p.UID = types.UID(u)
	}
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var podList = wire.ListMeta{TypeMeta: wire.TypeMeta{APIVersion: "v1", Kind: "PodList"}}

// newTestView returns a view whose disk never writes.
func newTestView(t *testing.T) *view {
	t.Helper()
	c, err := Open(t.TempDir(), nobody{}, testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	v := c.views.acquire(viewKey{User: nodeUser, Version: "v1", Resource: "pods", Representation: "protobuf"})
	t.Cleanup(v.release)
	return v
}

// fill lists the view: name → resourceVersion.
func fill(t *testing.T, v *view, began, version string, consistent bool, members map[string]string) verdict {
	t.Helper()
	st := v.newStage(began, consistent)
	defer st.end()
	for name, rv := range members {
		if err := st.add("ns/"+name, rv, pod(t, name, rv)); err != nil {
			t.Fatal(err)
		}
	}
	st.meta = podList
	st.meta.ResourceVersion = version
	return st.commit(version)
}

func (v *view) shows() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.version
	for _, name := range slices.Sorted(maps.Keys(v.index)) {
		s += fmt.Sprintf(" %s=%s", name, v.index[name].version)
	}
	if !v.usableLocked() {
		s += " unusable"
	}
	return s
}

func TestWhatMovesAView(t *testing.T) {
	put := func(name, version string) *change {
		return &change{name: "ns/" + name, version: version, object: []byte("x")}
	}
	gone := func(name, version string) *change { return &change{name: "ns/" + name, version: version} }
	tests := map[string]struct {
		do   func(t *testing.T, v *view)
		want string
	}{
		"an event that follows": {func(_ *testing.T, v *view) { v.apply("10", put("b", "11")) }, "11 ns/a=5 ns/b=11"},
		"an event of a stream that is behind": {func(_ *testing.T, v *view) {
			v.apply("3", put("a", "4"))
		}, "10 ns/a=5"},
		"the first news of a stream that is behind": {func(_ *testing.T, v *view) {
			v.apply("9", put("b", "12"))
		}, "12 ns/a=5 ns/b=12"},
		"a stream that begins above the view": {func(_ *testing.T, v *view) {
			if got := v.apply("11", put("b", "12")); got != isBeyond {
				t.Errorf("apply says %d", got)
			}
		}, "10 ns/a=5 unusable"},
		"a deletion":                      {func(_ *testing.T, v *view) { v.apply("10", gone("a", "12")) }, "12"},
		"a deletion of what is not there": {func(_ *testing.T, v *view) { v.apply("10", gone("z", "12")) }, "12 ns/a=5"},
		"an event behind a deletion": {func(_ *testing.T, v *view) {
			v.apply("10", gone("a", "12"))
			v.apply("10", put("a", "11"))
		}, "12"},
		"a bookmark":               {func(_ *testing.T, v *view) { v.advance("10", "15") }, "15 ns/a=5"},
		"an old bookmark":          {func(_ *testing.T, v *view) { v.advance("3", "9") }, "10 ns/a=5"},
		"a bookmark above a gap":   {func(_ *testing.T, v *view) { v.advance("11", "15") }, "10 ns/a=5 unusable"},
		"versions are no strings":  {func(_ *testing.T, v *view) { v.apply("10", put("a", "9")) }, "10 ns/a=5"},
		"a newer list":             {func(t *testing.T, v *view) { fill(t, v, "10", "20", true, map[string]string{"c": "19"}) }, "20 ns/c=19"},
		"a newer list of the same": {func(t *testing.T, v *view) { fill(t, v, "10", "20", true, map[string]string{"a": "5"}) }, "20 ns/a=5"},
		"an older list that an apiserver remembered": {func(t *testing.T, v *view) {
			fill(t, v, "10", "8", false, map[string]string{})
		}, "10 ns/a=5"},
		"a list that was overtaken by events": {func(t *testing.T, v *view) {
			v.apply("10", put("b", "12"))
			fill(t, v, "10", "11", true, map[string]string{"a": "5"})
		}, "12 ns/a=5 ns/b=12"},
		"the newest list there is, and it is older: etcd was restored": {func(t *testing.T, v *view) {
			if got := fill(t, v, "10", "8", true, map[string]string{"c": "7"}); got != restored {
				t.Errorf("commit says %d", got)
			}
			v.startOver()
			fill(t, v, "", "8", true, map[string]string{"c": "7"})
		}, "8 ns/c=7"},
		"a view that lost changes takes no events": {func(_ *testing.T, v *view) {
			v.lost.Store(true)
			v.apply("10", put("b", "11"))
		}, "10 ns/a=5 unusable"},
		"a view that lost changes takes a list, also an older one": {func(t *testing.T, v *view) {
			v.lost.Store(true)
			fill(t, v, "", "9", false, map[string]string{"a": "5"})
		}, "9 ns/a=5 unusable"},
		"a view that lost changes takes a newer list": {func(t *testing.T, v *view) {
			v.lost.Store(true)
			fill(t, v, "", "11", false, map[string]string{"a": "5"})
		}, "11 ns/a=5"},
		"a denied view is kept, and not shown": {func(_ *testing.T, v *view) { v.deny(true) }, "10 ns/a=5 unusable"},
		"a denied view that is listed again": {func(t *testing.T, v *view) {
			v.deny(true)
			fill(t, v, "10", "10", true, map[string]string{"a": "5"})
		}, "10 ns/a=5"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := newTestView(t)
			fill(t, v, "", "10", true, map[string]string{"a": "5"})
			test.do(t, v)
			if got := v.shows(); got != test.want {
				t.Errorf("the view shows %q, want %q", got, test.want)
			}
		})
	}
}

func TestSingleObjectsNeverMoveBackwards(t *testing.T) {
	v := newTestView(t)
	v.key.Single = true
	v.keepSingle(wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "ns/a", "", "10", []byte("new"))
	v.keepSingle(wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "ns/a", "", "9", []byte("old"))
	if e, ok := v.member("ns/a"); !ok || e.version != "10" {
		t.Errorf("the object is at %q, want 10", e.version)
	}
}

func TestStagesShareWhatTheyRead(t *testing.T) {
	v := newTestView(t)
	first, second := v.newStage("", true), v.newStage("", true)
	defer first.end()
	defer second.end()
	for _, s := range []*stage{first, second} {
		if err := s.add("ns/a", "5", pod(t, "a", "5")); err != nil {
			t.Fatal(err)
		}
	}
	a, b := first.items["ns/a"].bytes, second.items["ns/a"].bytes
	if &a[0] != &b[0] {
		t.Error("two readers of one object hold two copies of it")
	}
}

func TestASnapshotIsWholeWhileTheViewMovesOn(t *testing.T) {
	v := newTestView(t)
	fill(t, v, "", "10", true, map[string]string{"a": "5", "b": "6"})
	snap, err := v.snapshot()
	if err != nil || snap == nil {
		t.Fatal(snap, err)
	}
	defer snap.reader.Close()
	v.apply("10", &change{name: "ns/a", version: "11"})
	v.apply("11", &change{name: "ns/b", version: "12", object: pod(t, "b", "12")})
	got := ""
	for len(snap.members) > 0 {
		err := snap.next(256<<10, func(o store.Object) error {
			m, err := wire.Inspect(wire.Protobuf, o.Bytes)
			got += fmt.Sprintf("%s=%s ", m.Name, m.ResourceVersion)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := "a=5 b=6 "; got != want {
		t.Errorf("the snapshot shows %q, want %q", got, want)
	}
}
