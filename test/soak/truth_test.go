package soak_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watchTruth follows everything straight from the apiserver.
func (w *world) watchTruth() {
	w.truth = map[string]*follower{}
	direct := &client{name: "the truth", kube: w.admin}
	for _, q := range []query{
		{resource: "configmaps", object: &corev1.ConfigMap{}},
		{resource: "services", object: &corev1.Service{}},
		{resource: "pods", object: &corev1.Pod{}},
	} {
		f := w.follow(direct, q)
		f.mu.Lock()
		f.members = map[string]bool{}
		f.mu.Unlock()
		w.truth[q.resource] = f
		w.eventually("the truth about "+q.resource, f.listed)
	}
}

// settle waits until all followers have what the apiserver has. Nothing changes any more.
func (w *world) settle() {
	w.t.Helper()
	deadline := time.Now().Add(2 * patience)
	for _, f := range w.followers {
		reason := ""
		same := func() bool {
			truth := w.truth[f.query.resource]
			truth.mu.Lock()
			defer truth.mu.Unlock()
			f.mu.Lock()
			defer f.mu.Unlock()
			want := maps.Clone(truth.items)
			maps.DeleteFunc(want, func(name, _ string) bool { return !f.belongs(truth, name) })
			if !maps.Equal(want, f.items) {
				reason = fmt.Sprintf("it has %v; want %v", f.items, want)
				return false
			}
			return true
		}
		if !w.within(time.Until(deadline), same) {
			f.complain("not what the apiserver has", "%s", reason)
		}
	}
}

// sameHistories compares what each follower was sent with what happened, event by event.
func (w *world) sameHistories(cuts *cuts) {
	for _, f := range w.followers {
		truth := w.truth[f.query.resource]
		var want []change
		got := f.changes
		for i, c := range truth.changes {
			switch {
			case c.version <= f.start || !f.belongs(truth, c.name):
			case len(got) > 0 && got[0] == c:
				got, want = got[1:], append(want, c)
			case cuts.touched(truth.times[i], truth.times[i]) && superseded(c, truth.changes[i+1:]):
				w.skipped++
			default:
				want = append(want, c)
			}
		}
		if !slices.Equal(want, f.changes) {
			f.complain("another history", "%d events, where %d happened: %s", len(f.changes), len(want), firstDifference(f.changes, want))
		}
	}
}

// rare fails the test if what may happen happens often: more than one in 200 events was
// left out, or one in 200 watches too old.
func (w *world) rare() {
	w.t.Helper()
	told, watches, expired := 0, 0, 0
	for _, f := range w.followers {
		told, watches, expired = told+len(f.changes), watches+f.watches, expired+f.expired
	}
	if w.skipped*200 > told {
		w.t.Errorf("%d events were told, and %d were not, since others of the same objects followed", told, w.skipped)
	}
	if expired*200 > watches {
		w.t.Errorf("of %d watches, %d were too old", watches, expired)
	}
}

// superseded reports whether a change of an object was followed by another. Where the
// apiserver has forgotten a watch's version when the link is back, for it keeps little more
// than a minute, only the last one is sent: as to a client that lists again.
func superseded(c change, later []change) bool {
	next := slices.IndexFunc(later, func(other change) bool { return other.name == c.name })
	return c.kind == watch.Modified && next >= 0
}

func firstDifference(got, want []change) string {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return fmt.Sprintf("from the %dth on: %v, where happened %v", i+1, got[min(i, len(got)):min(i+3, len(got))], want[min(i, len(want)):min(i+3, len(want))])
		}
	}
	return "none"
}
