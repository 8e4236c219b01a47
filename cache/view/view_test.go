package view

import (
	"fmt"
	"testing"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

func (v *View) shows() string {
	v.of.lock()
	defer v.of.unlock()
	s := v.version
	for _, m := range v.members {
		s += fmt.Sprintf(" %s=%s", m.Name, m.Version)
	}
	if !v.usableLocked() {
		s += " unusable"
	}
	return s
}

func TestWhatMovesAView(t *testing.T) {
	put := func(name, version string) *Event {
		return &Event{Name: "ns/" + name, Version: version, Object: []byte("x")}
	}
	gone := func(name, version string) *Event { return &Event{Name: "ns/" + name, Version: version} }
	tests := map[string]struct {
		do   func(t *testing.T, v *View)
		want string
	}{
		"an event that follows": {func(_ *testing.T, v *View) { v.apply("10", put("b", "11")) }, "11 ns/a=5 ns/b=11"},
		"an event of a stream that is behind": {func(_ *testing.T, v *View) {
			v.apply("3", put("a", "4"))
		}, "10 ns/a=5"},
		"the first news of a stream that is behind": {func(_ *testing.T, v *View) {
			v.apply("9", put("b", "12"))
		}, "12 ns/a=5 ns/b=12"},
		"a stream that begins above the view": {func(_ *testing.T, v *View) {
			if got := v.apply("11", put("b", "12")); got != Gap {
				t.Errorf("apply says %d", got)
			}
		}, "10 ns/a=5 unusable"},
		"a deletion":                      {func(_ *testing.T, v *View) { v.apply("10", gone("a", "12")) }, "12"},
		"a deletion of what is not there": {func(_ *testing.T, v *View) { v.apply("10", gone("z", "12")) }, "12 ns/a=5"},
		"an event behind a deletion": {func(_ *testing.T, v *View) {
			v.apply("10", gone("a", "12"))
			v.apply("10", put("a", "11"))
		}, "12"},
		"a bookmark":               {func(_ *testing.T, v *View) { v.apply("10", &Event{Version: "15"}) }, "15 ns/a=5"},
		"an old bookmark":          {func(_ *testing.T, v *View) { v.apply("3", &Event{Version: "9"}) }, "10 ns/a=5"},
		"a bookmark above a gap":   {func(_ *testing.T, v *View) { v.apply("11", &Event{Version: "15"}) }, "10 ns/a=5 unusable"},
		"versions are no strings":  {func(_ *testing.T, v *View) { v.apply("10", put("a", "9")) }, "10 ns/a=5"},
		"a newer list":             {func(t *testing.T, v *View) { fillPods(t, v, "10", "20", true, map[string]string{"c": "19"}) }, "20 ns/c=19"},
		"a newer list of the same": {func(t *testing.T, v *View) { fillPods(t, v, "10", "20", true, map[string]string{"a": "5"}) }, "20 ns/a=5"},
		"an older list that an apiserver remembered": {func(t *testing.T, v *View) {
			fillPods(t, v, "10", "8", false, map[string]string{})
		}, "10 ns/a=5"},
		"a list that was overtaken by events": {func(t *testing.T, v *View) {
			v.apply("10", put("b", "12"))
			fillPods(t, v, "10", "11", true, map[string]string{"a": "5"})
		}, "12 ns/a=5 ns/b=12"},
		"the newest list there is, and it is older: etcd was restored": {func(t *testing.T, v *View) {
			if got := fillPods(t, v, "10", "8", true, map[string]string{"c": "7"}); got != Restored {
				t.Errorf("commit says %d", got)
			}
		}, "8 ns/c=7"},
		"a view that lost changes takes no events": {func(_ *testing.T, v *View) {
			v.stale.Store(true)
			v.apply("10", put("b", "11"))
		}, "10 ns/a=5 unusable"},
		"a view that lost changes takes a list, also an older one": {func(t *testing.T, v *View) {
			v.stale.Store(true)
			fillPods(t, v, "", "9", false, map[string]string{"a": "5"})
		}, "9 ns/a=5 unusable"},
		"a view that lost changes takes a newer list": {func(t *testing.T, v *View) {
			v.stale.Store(true)
			fillPods(t, v, "", "11", false, map[string]string{"a": "5"})
		}, "11 ns/a=5"},
		"a denied view is kept, and not shown": {func(_ *testing.T, v *View) { v.Deny(true) }, "10 ns/a=5 unusable"},
		"a denied view that is listed again": {func(t *testing.T, v *View) {
			v.Deny(true)
			fillPods(t, v, "10", "10", true, map[string]string{"a": "5"})
		}, "10 ns/a=5"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := newPodsView(t)
			fillPods(t, v, "", "10", true, map[string]string{"a": "5"})
			test.do(t, v)
			if got := v.shows(); got != test.want {
				t.Errorf("the view shows %q, want %q", got, test.want)
			}
		})
	}
}

// Several watches may find out at once.
func TestARestoreIsFollowedOnce(t *testing.T) {
	s := newTestViews(t, t.TempDir(), enough)
	v := s.Acquire(keyOfPods(query.NodeUser))
	defer v.Release()
	fillPods(t, v, "", "100", true, map[string]string{"a": "50"})
	before := v.Began()
	for range 2 {
		s.Restored(v, before, "90")
		if v.Position() == "" {
			fillPods(t, v, "", "95", true, map[string]string{"b": "85"})
		}
	}
	if got, want := v.shows(), "95 ns/b=85"; got != want {
		t.Errorf("the view shows %q, want %q", got, want)
	}
	fillPods(t, v, "", "97", true, map[string]string{"b": "85"})
	if s.Restored(v, before, "96"); v.Position() != "97" {
		t.Error("what was listed since is dropped")
	}
}

func TestObjectsThatWereReadNeverMoveBackwards(t *testing.T) {
	s := newTestViews(t, t.TempDir(), enough)
	for _, version := range []string{"10", "9"} {
		readPod(s, "a", version)
	}
	if got := s.readAt(pods(query.NodeUser), "ns/a"); got != "10" {
		t.Errorf("the object is at %q, want 10", got)
	}
}

func TestBuildersShareWhatTheyRead(t *testing.T) {
	v := newPodsView(t)
	first, second := v.NewBuilder(Began{}, true, wire.Protobuf), v.NewBuilder(Began{}, true, wire.Protobuf)
	defer first.End()
	defer second.End()
	for _, s := range []*Builder{first, second} {
		if err := s.Add("ns/a", "5", "", barePod(t, "a", "5")); err != nil {
			t.Fatal(err)
		}
	}
	a, b := first.Items["ns/a"].Bytes, second.Items["ns/a"].Bytes
	if &a[0] != &b[0] {
		t.Error("two readers of one object hold two copies of it")
	}
}

func TestASnapshotIsWholeWhileTheViewMovesOn(t *testing.T) {
	v := newPodsView(t)
	fillPods(t, v, "", "10", true, map[string]string{"a": "5", "b": "6"})
	snap := v.Snapshot(wire.JSON)
	if snap == nil {
		t.Fatal("there is none")
	}
	defer snap.Close()
	v.apply("10", &Event{Namespace: "ns", Name: "a", Version: "11"})
	v.apply("11", &Event{Namespace: "ns", Name: "b", Version: "12", Object: barePod(t, "b", "12")})
	got := ""
	for len(snap.Members) > 0 {
		err := snap.Next(256<<10, func(_ string, _ wire.Encoding, bare []byte) error {
			m, err := wire.Inspect(wire.Protobuf, bare)
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
