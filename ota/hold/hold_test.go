package hold

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/podreport"
)

var web = types.NamespacedName{Namespace: "default", Name: "web-1"}

// pods has the only pod of the node.
type pods struct {
	web     atomic.Pointer[corev1.Pod]
	unknown atomic.Bool
}

func (p *pods) Get(types.NamespacedName) *corev1.Pod { return p.web.Load() }
func (p *pods) Synced() bool                         { return !p.unknown.Load() }

func podWith(uid types.UID) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = web.Namespace, web.Name, uid
	return pod
}

// node has one pod, and holds in a folder.
type node struct {
	*Holds
	t       *testing.T
	pods    *pods
	dir     string
	changes atomic.Int32
}

func newNode(t *testing.T) *node {
	n := &node{t: t, dir: t.TempDir(), pods: &pods{}}
	n.pods.web.Store(podWith("a"))
	n.restart()
	return n
}

// restart opens the folder again.
func (n *node) restart() {
	n.t.Helper()
	h, err := New(Options{Dir: n.dir, Pods: n.pods, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		n.t.Fatal(err)
	}
	n.Holds = h
}

var day = api.DefaultPolicy()

func (n *node) set(length time.Duration) time.Time {
	n.t.Helper()
	state, err := n.Set(n.pods.web.Load(), day, length, "driving")
	if err != nil {
		n.t.Fatal(err)
	}
	return state.Until
}

// expect checks how long the pod is held from now on; 0 is that it is not.
func (n *node) expect(want time.Duration) {
	n.t.Helper()
	state, ok := n.State(web)
	value := n.Report(n.pods.web.Load()).Annotations[api.HoldAnnotation]
	if ok != (want > 0) || ok != (value != "") {
		n.t.Fatalf("held: %t, reported as %q; want for %v", ok, value, want)
	}
	if got := time.Until(state.Until); ok && (got-want).Abs() > time.Second {
		n.t.Fatalf("held for %v, want %v", got, want)
	}
}

// shiftClock moves the times in the files, as if the clock had been set by so much while the hub
// did not run.
func (n *node) shiftClock(by time.Duration) {
	n.t.Helper()
	for name, v := range maps.Clone(n.holds) {
		v.Since, v.Until = v.Since.Add(-by), v.Until.Add(-by)
		if err := n.files.Put(name, v.record); err != nil {
			n.t.Fatal(err)
		}
	}
	n.restart()
}

func TestAHoldLastsAndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.expect(0)
		if until := n.set(2 * time.Hour); !until.Equal(time.Now().Add(2 * time.Hour)) {
			t.Errorf("until %v", until)
		}
		n.expect(2 * time.Hour)
		n.restart()
		n.expect(2 * time.Hour)
		state, _ := n.State(web)
		if state.Reported || state.Reason != "driving" {
			t.Errorf("got %+v", state)
		}
		pod := podWith("a")
		pod.Annotations = n.Report(pod).Annotations
		n.pods.web.Store(pod)
		if patch := n.patch(pod); patch != "" {
			t.Errorf("it is reported, and reported again: %s", patch)
		}
		if state, _ = n.State(web); !state.Reported {
			t.Error("the pod has the annotation, and it is not reported")
		}
		if h, ok, err := api.HoldOf(pod); !ok || err != nil || !h.Since.Time.Equal(state.Since) || !h.Until.Time.Equal(state.Until) || h.Reason != "driving" {
			t.Errorf("got %+v, %t, %v", h, ok, err)
		}
		if patch, without := n.patch(podWith("a")), n.patch(podWith("b")); !strings.Contains(patch, "driving") || without != "" {
			t.Errorf("the pod gets %s, and its successor %s", patch, without)
		}
		time.Sleep(2 * time.Hour)
		n.expect(0)
		if patch := n.patch(pod); !strings.Contains(patch, `{"apps.openyurt.io/upgrade-hold":null}`) {
			t.Errorf("the hold has ended, and the pod gets %s", patch)
		}
		n.restart()
		n.expect(0)
	})
}

// patch returns what is sent to the cloud for a pod, "" if it has what it should.
func (n *node) patch(pod *corev1.Pod) string {
	return string(podreport.Patch(pod, []podreport.Report{n.Report(pod)}, time.Now()))
}

func TestTheMaximumCountsFromTheFirstHold(t *testing.T) {
	for name, between := range map[string]func(*node){
		"extended":              func(*node) {},
		"removed and set again": func(n *node) { n.remove() },
		"after a restart":       func(n *node) { n.restart() },
		"removed, then a restart": func(n *node) {
			n.remove()
			n.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				first := time.Now()
				n.set(5 * time.Hour)
				since, _ := n.State(web)
				for left := 19 * time.Hour; left > 0; left -= 5 * time.Hour {
					time.Sleep(5*time.Hour - time.Minute)
					between(n)
					time.Sleep(time.Minute)
					n.set(5 * time.Hour)
					n.expect(min(5*time.Hour, left))
				}
				if state, _ := n.State(web); !state.Since.Equal(since.Since) || !state.Until.Equal(first.Add(24*time.Hour)) {
					t.Errorf("got %+v, want since %v", state, since.Since)
				}
				time.Sleep(4 * time.Hour)
				n.expect(0)
				if _, err := n.Set(n.pods.web.Load(), day, time.Second, ""); !errors.Is(err, ota.ErrHeldTooLong) || !strings.Contains(err.Error(), "24h0m0s, since ") {
					t.Errorf("got %v", err)
				}
				time.Sleep(api.HoldPause)
				n.set(5 * time.Hour)
				n.expect(5 * time.Hour)
			})
		})
	}
}

func (n *node) remove() {
	n.t.Helper()
	if was, err := n.Remove(web); !was || err != nil {
		n.t.Fatal(was, err)
	}
	n.expect(0)
	if was, err := n.Remove(web); was || err != nil {
		n.t.Fatal("a hold was removed twice", err)
	}
}

func TestASuccessorIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.set(20 * time.Hour)
		n.pods.web.Store(podWith("b"))
		n.expect(0)
		n.set(20 * time.Hour) // it has a maximum of its own
		n.expect(20 * time.Hour)

		latest := podWith("c") // which the node's pods do not have yet
		if _, err := n.Set(latest, day, time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		if _, ok := n.Of(latest); !ok {
			t.Error("a pod that has just come is not held")
		}
		if _, ok := n.Of(n.pods.web.Load()); ok {
			t.Error("the pod before it is held")
		}
	})
}

func TestAForgedHoldIsRemoved(t *testing.T) {
	n := newNode(t)
	pod := podWith("a")
	pod.Annotations = map[string]string{api.HoldAnnotation: `{"since":"2026-01-01T00:00:00Z","until":"2126-01-01T00:00:00Z"}`}
	n.pods.web.Store(pod)
	if _, ok := n.State(web); ok {
		t.Error("an annotation holds the pod")
	}
	if patch := n.patch(pod); !strings.Contains(patch, `{"apps.openyurt.io/upgrade-hold":null}`) {
		t.Errorf("the pod gets %s", patch)
	}
}

func TestHoldsAndClocks(t *testing.T) {
	const years = 10 * 365 * 24 * time.Hour
	for name, tt := range map[string]struct {
		by, want time.Duration
	}{
		"as it was":                      {0, 3 * time.Hour},
		"set back by years: from now on": {-years, 4 * time.Hour},
		"set back a little":              {-30 * time.Minute, 3*time.Hour + 30*time.Minute},
		"set forward by years: it ended": {years, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.set(4 * time.Hour)
				time.Sleep(time.Hour)
				n.shiftClock(tt.by)
				n.expectLasts(tt.want)
			})
		})
	}
}

func TestAnExtensionCorrectsWhatAWrongClockWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.set(4 * time.Hour)
		begun := n.holds[web]
		begun.Since, begun.Until = begun.Since.AddDate(-50, 0, 0), begun.Until.AddDate(-50, 0, 0)
		n.holds[web] = begun
		time.Sleep(time.Hour)
		if until := n.set(4 * time.Hour); !until.Equal(time.Now().Add(4 * time.Hour)) {
			t.Errorf("until %v, by a clock that shows %v", until, time.Now())
		}
	})
}

// expectLasts waits until the hold ends.
func (n *node) expectLasts(want time.Duration) {
	n.t.Helper()
	begin := time.Now()
	for {
		if _, ok := n.State(web); !ok {
			break
		}
		time.Sleep(time.Minute)
	}
	if got := time.Since(begin); (got - want).Abs() > time.Minute {
		n.t.Errorf("it lasts for %v, want %v", got, want)
	}
}

func TestRunEndsAndForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); n.Run(ctx, func() { n.changes.Add(1) }) }()
		defer func() { stop(); <-done }()
		at := func(wait time.Duration) (files int, changes int32) {
			time.Sleep(wait)
			synctest.Wait()
			all, err := filepath.Glob(filepath.Join(n.dir, "*.json"))
			if err != nil {
				t.Fatal(err)
			}
			return len(all), n.changes.Swap(0)
		}
		n.set(2 * time.Hour)
		if files, changes := at(0); files != 1 || changes == 0 {
			t.Errorf("set: %d files, %d changes", files, changes)
		}
		if files, changes := at(2 * time.Hour); files != 1 || changes == 0 {
			t.Errorf("its end: %d files, %d changes", files, changes)
		}
		if files, _ := at(api.HoldPause); files != 0 {
			t.Error("a hold is kept for ever")
		}

		n.set(2 * time.Hour)
		n.pods.web.Store(nil)
		n.PodsChanged()
		if files, _ := at(time.Second); files != 1 {
			t.Error("a hold is forgotten, though its pod may be newer than what is known")
		}
		n.pods.unknown.Store(true)
		if files, _ := at(2 * unknownFor); files != 1 {
			t.Error("a hold is forgotten while no pods are known")
		}
		n.pods.unknown.Store(false)
		if files, _ := at(unknownFor); files != 0 {
			t.Error("the hold of a pod that is gone is kept")
		}

		n.pods.web.Store(podWith("a"))
		n.set(2 * time.Hour)
		short := podWith("a")
		short.Annotations = map[string]string{api.PolicyAnnotation: api.Policy{MaxHold: time.Hour}.Encode()}
		n.pods.web.Store(short)
		n.PodsChanged()
		at(0)
		n.expect(time.Hour)
		short = podWith("a")
		short.Annotations = map[string]string{api.PolicyAnnotation: "{broken"}
		n.pods.web.Store(short)
		n.PodsChanged()
		at(0)
		n.expect(0)
	})
}

func TestAHoldThatCannotBeWrittenDoesNotCount(t *testing.T) {
	n := newNode(t)
	if err := errors.Join(os.RemoveAll(n.dir), os.WriteFile(n.dir, nil, 0o600)); err != nil { // in the folder's place
		t.Fatal(err)
	}
	if _, err := n.Set(n.pods.web.Load(), day, time.Hour, ""); err == nil {
		t.Error("no error")
	}
	n.expect(0)
}

func TestTheMetricCountsHolds(t *testing.T) {
	n := newNode(t)
	registry := prometheus.NewRegistry()
	o := n.Options
	o.Registerer = registry
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	value := func() float64 {
		families, err := registry.Gather()
		if err != nil || len(families) != 1 {
			t.Fatal(families, err)
		}
		return families[0].GetMetric()[0].GetGauge().GetValue()
	}
	if got := value(); got != 0 {
		t.Errorf("got %v", got)
	}
	if _, err := h.Set(podWith("a"), day, time.Hour, ""); err != nil {
		t.Fatal(err)
	}
	if got := value(); got != 1 {
		t.Errorf("got %v", got)
	}
}

// Without its hold, a pod would be upgraded though its owner holds it.
func TestAHoldThatCannotBeReadIsAnError(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "shop_web.json")
	if err := os.Symlink(file, file); err != nil { // to read it fails
		t.Fatal(err)
	}
	o := Options{Dir: dir, Pods: &pods{}, Logger: slog.New(slog.DiscardHandler)}
	if _, err := New(o); err == nil {
		t.Error("it counts as no hold")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := New(o); err != nil {
		t.Error(err)
	}
}
