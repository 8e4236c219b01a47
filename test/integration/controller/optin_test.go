package controller_test

import (
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

func TestEverySpellingOptsIn(t *testing.T) {
	f := newDaemonSet(t, nil)
	start(t)
	for _, tt := range []struct{ key, value string }{
		{strategyKey, "OTA"},
		{strategyKey, "ota"},
		{strategyKey, "Ota"},
		{oldStrategyKey, "OTA"},
		{oldStrategyKey, "oTA"},
	} {
		f.Annotate(tt.key, tt.value)
		f.await(map[string]int{upToDate: nodes})
		f.Annotate(tt.key, nil)
		f.await(map[string]int{unmarked: nodes})
	}
}

func TestTheNewerKeyWins(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA", oldStrategyKey: "auto"})
	start(t)
	f.await(map[string]int{upToDate: nodes})
	// Only the older one is left, and asks for something else.
	f.Annotate(strategyKey, nil)
	f.await(map[string]int{unmarked: nodes})
}

func TestOptingOutStopsTheWatchesAndTheMetric(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	r := start(t)
	f.await(map[string]int{upToDate: nodes})
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	if got := r.openWatches(f.Namespace, "pods"); got != 1 {
		t.Errorf("got %d watches of pods while opted in, want 1", got)
	}
	f.Annotate(strategyKey, nil)
	f.await(map[string]int{unmarked: nodes})
	f.AwaitEvent("UpgradeMarksRemoved", "Normal", "3 pods")
	poll.Eventually(t, "no watch is left", func() bool {
		return r.openWatches(f.Namespace, "pods")+r.openWatches(f.Namespace, "controllerrevisions") == 0
	})
	if _, ok := r.metric(t, "edgehub_controller_daemonset_pods", map[string]string{"namespace": f.Namespace}); ok {
		t.Error("the metric of a DaemonSet that opted out is still there")
	}
}

func TestWrongWordsAreAnsweredOnce(t *testing.T) {
	const reason = "InvalidUpdateStrategy"
	f := newDaemonSet(t, map[string]string{strategyKey: "OTAA"})
	r := start(t)
	f.AwaitEvent(reason, "Warning", `"OTAA"`, "OTA or AdvancedRollingUpdate")

	// Looked at again and again, it is not reported again.
	for range 5 {
		lookAgain(t, r, f)
	}
	// Other words are answered anew, which also shows that nothing before them is
	// still on its way: Events are written in order.
	f.Annotate(strategyKey, "nonsense")
	f.AwaitEvent(reason, `"nonsense"`)
	told := f.Events(reason)
	for message, count := range told {
		if count != 1 {
			t.Errorf("told %d times: %s", count, message)
		}
	}
	if len(told) != 2 {
		t.Errorf("got %d Events, want 2: %v", len(told), told)
	}
	// The first words again are a change, and counted up on the first Event.
	f.Annotate(strategyKey, "OTAA")
	poll.Eventually(t, "they have been told twice", func() bool {
		for message, count := range f.Events(reason) {
			if strings.Contains(message, `"OTAA"`) && count == 2 {
				return true
			}
		}
		return false
	})
	if len(r.of("GET", "/namespaces/"+f.Namespace+"/pods")) != 0 || f.marks()[unmarked] != nodes {
		t.Errorf("something was done with the pods: %v", f.marks())
	}
	errs, _ := r.metric(t, "edgehub_controller_reconciles_total", map[string]string{"result": "error"})
	if errs != 0 {
		t.Errorf("%v reconciles failed: wrong words are no reason to try again", errs)
	}

	f.Annotate(strategyKey, "OTA")
	f.await(map[string]int{upToDate: nodes})
}

func TestGoodWordsWithoutOnDelete(t *testing.T) {
	f := newDaemonSet(t, nil)
	f.Patch(`{"spec":{"updateStrategy":{"type":"RollingUpdate"}},"metadata":{"annotations":{%q:"OTA"}}}`, strategyKey)
	start(t)
	f.AwaitEvent("InvalidUpdateStrategy", "Warning", `"OTA"`, "RollingUpdate", "to OnDelete")
	if f.marks()[unmarked] != nodes {
		t.Errorf("pods were marked: %v", f.marks())
	}
	f.Patch(`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	f.await(map[string]int{upToDate: nodes})
	f.Patch(`{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
	f.await(map[string]int{unmarked: nodes})
}

// A slip of the pen must not undo what is under way.
func TestWrongWordsLaterLeaveThePodsAsTheyAre(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	r := start(t)
	f.await(map[string]int{upToDate: nodes})
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	settled(t, r, f)
	sent, seen := len(r.patches(f.Namespace)), r.reconciles(t)
	f.Annotate(strategyKey, "OTAA")
	f.AwaitEvent("InvalidUpdateStrategy", "Warning", `"OTAA"`)
	poll.Eventually(t, "what the change led to is done", func() bool { return r.reconciles(t) > seen })
	if got := len(r.patches(f.Namespace)); got != sent || f.marks()[needsOne] != nodes {
		t.Errorf("%d patches were sent, and the pods are %v", got-sent, f.marks())
	}
	// What they are removed with is also when the marks go.
	f.Annotate(strategyKey, nil)
	f.await(map[string]int{unmarked: nodes})
}

// Memory grows with what opted in: nothing else is asked for.
func TestOnlyPodsOfDaemonSetsThatOptedInAreRead(t *testing.T) {
	newDaemonSet(t, nil)
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	r := start(t)
	f.await(map[string]int{upToDate: nodes})
	f.Annotate(strategyKey, nil) // which lists
	f.await(map[string]int{unmarked: nodes})
	for _, resource := range []string{"/pods", "/controllerrevisions"} {
		reads := r.of("GET", resource)
		if len(reads) == 0 {
			t.Errorf("no reads of %s were recorded", resource)
		}
		for _, q := range reads {
			if !strings.Contains(q.path, "/namespaces/"+f.Namespace+"/") || q.query.Get("labelSelector") != "app="+name {
				t.Errorf("read %s with %v", q.path, q.query)
			}
		}
	}
}
