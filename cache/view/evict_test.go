package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
)

// viewOf keeps a view of a user that takes so many bytes, and was used at a time.
func viewOf(s *Views, user, name string, used int64, size int) *View {
	key := keyOfPods(user)
	key.Labels = name
	if user == query.NodeUser { // nothing that a kubelet reads
		key.Resource = "endpoints"
	}
	return keptView(s, key, used, size)
}

func keptView(s *Views, key query.Key, used int64, size int) *View {
	v := s.Acquire(key)
	v.used.Store(used)
	v.of.lock()
	v.version, v.complete = "1", true
	v.of.unlock()
	v.apply("1", &Event{Namespace: "ns", Name: "a", Version: "2", Object: []byte(strings.Repeat("x", size))})
	v.Release()
	s.count(v)
	return v
}

// keptLabels are the names of the views that are kept.
func keptLabels(s *Views) (kept []string) {
	for _, state := range s.Describe() {
		kept = append(kept, state.LabelSelector)
	}
	slices.Sort(kept)
	return kept
}

// Package quota decides; here is what it is told of a view.
func TestWhichViewsAreEvicted(t *testing.T) {
	const size, most = 100 << 10, 500 << 10 // four fit
	for name, test := range map[string]struct {
		others []string // "user/name", with + where a client watches it, in the order in which they were used
		newest string
		want   []string
	}{
		"of the user with the most, what was used least recently": {
			[]string{"flooder/1", "flooder/2", "flooder/3", "flooder/4"}, "victim/v", []string{"2", "3", "4", "v"},
		},
		"what is watched goes last": {
			[]string{"a/1+", "a/2", "a/3+", "a/4"}, "a/5", []string{"1", "3", "4", "5"},
		},
		"what is watched goes after what has just come": {
			[]string{"a/1+", "a/2+", "a/3+", "a/4+"}, "a/5", []string{"1", "2", "3", "4"},
		},
		"the node keeps three times as much": {
			[]string{"node/1", "node/2", "node/3", "a/4"}, "a/5", []string{"1", "2", "3", "5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestViews(t, t.TempDir(), most)
			add := func(i int, text string) *View {
				user, name, _ := strings.Cut(strings.TrimSuffix(text, "+"), "/")
				v := viewOf(s, user, name, int64(i), size)
				if strings.HasSuffix(text, "+") {
					v.Hold()
				}
				return v
			}
			for i, text := range test.others {
				add(i, text)
			}
			newest := add(len(test.others), test.newest)
			newest.Hold() // the request that reads it
			kept := s.EnforceLimit(newest)
			if got := keptLabels(s); !slices.Equal(got, test.want) {
				t.Errorf("%v are kept, want %v", got, test.want)
			}
			if _, name, _ := strings.Cut(test.newest, "/"); kept != slices.Contains(test.want, name) {
				t.Errorf("what was just read is kept: fit says %t", kept)
			}
		})
	}
}

// A flood must not cost a look at all views for each of its lists.
func TestEvictionMakesRoomForMoreThanOneView(t *testing.T) {
	s := newTestViews(t, t.TempDir(), enough)
	for i := range maxViews + 1 {
		viewOf(s, "flooder", fmt.Sprint("l", i), int64(i), 1)
	}
	s.EnforceLimit(viewOf(s, "flooder", "newest", maxViews+1, 1))
	kept := s.Describe()
	if n := len(kept); n > maxViews-maxViews/evictionSlack || n < maxViews*9/10 {
		t.Errorf("%d views are kept, and the bound is %d", n, maxViews)
	}
	for _, state := range kept {
		if state.LastUsed.UnixNano() < maxViews/evictionSlack {
			t.Errorf("the view %q is kept, and others went that were used later", state.LabelSelector)
		}
	}
	if n := len(s.All()); n > maxViews {
		t.Errorf("%d views are in memory", n)
	}
}

// Where what the kubelet reads exceeds the bound, there is nothing to choose from. What else
// is read goes at once, and nobody looks at all views, nor waits for one that is in use.
func TestEvictionDoesNotExamineAllViewsIfOnlyTheKubeletsAreLeft(t *testing.T) {
	const size = 100 << 10
	s := newTestViews(t, t.TempDir(), 3*size)
	kubeletViews := func(name string, i int64) *View {
		key := keyOfPods(query.NodeUser)
		key.Labels = name
		return keptView(s, key, i, size)
	}
	key := keyOfPods(query.NodeUser)
	key.Resource, key.Labels = "nodes", "0"
	busy := keptView(s, key, 0, size).of
	for i := range int64(4) {
		kubeletViews(fmt.Sprint("k", i), i)
	}
	viewOf(s, "other", "before", 5, size)
	if s.EnforceLimit(viewOf(s, "other", "first", 6, size)) {
		t.Error("there is room for another's view")
	}
	for name, read := range map[string]func() *View{
		"the kubelet's": func() *View { return kubeletViews("newest", 7) },
		"another's":     func() *View { return viewOf(s, "other", "newest", 8, size) },
	} {
		v := read()
		busy.lock()
		kept := make(chan bool, 1)
		go func() { kept <- s.EnforceLimit(v) }()
		select {
		case kept := <-kept:
			if kept != v.of.isKubelets() {
				t.Errorf("%s view is kept: %t", name, kept)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("%s view makes the cache look at all views", name)
		}
		busy.unlock()
	}
	if got, want := keptLabels(s), []string{"0", "k0", "k1", "k2", "k3", "newest"}; !slices.Equal(got, want) {
		t.Errorf("%v are kept, want %v", got, want)
	}
}

func TestUnusedViewsAreDropped(t *testing.T) {
	const user = `user:"somebody"#`
	tests := map[string]struct {
		user  string
		do    func(s *Views, v *View)
		stays bool
	}{
		"nobody has read it for 30 days": {user, func(*Views, *View) {}, false},
		"somebody has read it":           {user, func(_ *Views, v *View) { v.Touch() }, true},
		"nobody has, but it is needed": {user, func(s *Views, v *View) {
			for range 2 {
				s.DropUnread(v, func(string, string) bool { return true })
			}
		}, true},
		"somebody watches it":                {user, func(_ *Views, v *View) { v.Hold() }, true},
		"the kubelet's, where none runs now": {query.NodeUser, func(*Views, *View) {}, true},
		"what no kubelet reads any more": {query.NodeUser, func(s *Views, _ *View) {
			s.Acquire(query.Key{User: query.NodeUser, Version: "v1", Resource: "nodes"})
		}, false},
		"the clock was wrong by years": {user, func(_ *Views, v *View) {
			v.used.Store(time.Unix(0, 0).UnixNano())
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTestViews(t, t.TempDir(), enough)
			v := s.Acquire(keyOfPods(test.user))
			fillPods(t, v, "", "100", true, map[string]string{"a": "50"})
			v.Release()
			s.Sweep()
			v.unused = unusedFor // sweeps later
			test.do(s, v)
			s.Sweep()
			if got := s.Find(keyOfPods(test.user)) != nil; got != test.stays {
				t.Errorf("it is kept: %t, want %t", got, test.stays)
			}
		})
	}
}

// A view is found empty, filled, let go of, and only then removed.
func TestAViewThatWasJustFilledIsNotRemoved(t *testing.T) {
	s := newTestViews(t, t.TempDir(), enough)
	v := s.Acquire(keyOfPods(query.NodeUser))
	fillPods(t, v, "", "100", true, map[string]string{"a": "50"})
	v.Release()
	s.remove(v)
	if s.Find(keyOfPods(query.NodeUser)) != v {
		t.Error("what a client has just read is gone")
	}
}
