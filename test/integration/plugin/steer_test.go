package plugin

import (
	"os"
	"testing"

	"github.com/edgehub-io/edgehub/controller/rollout"
)

// write puts what was printed into a file.
func (a answer) write(t *testing.T, file string) {
	t.Helper()
	a.expect(t, 0, "")
	if err := os.WriteFile(file, []byte(a.out), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) annotation(key string) string { return f.get().Annotations[key] }

func TestPauseAndResume(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	f.change("app:v2")
	ns := "-n=" + f.namespace

	edgehub(t, "pause", "ds/web", ns).expect(t, 0, "daemonset.apps/web paused")
	if got := f.annotation(rollout.PausedAnnotation); got != "true" {
		t.Errorf("the annotation is %q, want true", got)
	}
	edgehub(t, "pause", "ds/web", ns).expect(t, 0, "is paused already")
	edgehub(t, "status", "ds/web", ns).expect(t, 3, "held             4  by the pause", "kubectl edgehub resume ds/web -n "+f.namespace)
	edgehub(t, "resume", "ds/web", ns).expect(t, 0, "daemonset.apps/web resumed")
	if _, there := f.get().Annotations[rollout.PausedAnnotation]; there {
		t.Error("the annotation is still there")
	}
	edgehub(t, "resume", "ds/web", ns).expect(t, 0, "neither paused nor halted")
	edgehub(t, "status", "ds/web", ns).expect(t, 2, "pending          4")
}

func TestAPauseIsNotKeptFromOneWithWrongOptions(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced, rollout.MaxUnavailableAnnotation: "abc"})
	edgehub(t, "pause", "ds/web", "-n", f.namespace).expect(t, 0, "paused")
	if got := f.annotation(rollout.PausedAnnotation); got != "true" {
		t.Errorf("the annotation is %q, want true", got)
	}
}

func TestResumePastTheCircuitBreaker(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced, rollout.PausedAnnotation: "true"})
	f.change("app:v2")
	f.replace("node1")
	f.replace("node2")
	f.cutOff("node1")
	f.cutOff("node2")
	revision, ns := f.revision("node1"), "-n="+f.namespace
	f.setCondition(string(rollout.HaltedCondition), "True", "controllerrevision "+revision+": 2 of the 2 nodes with this revision went NotReady: node1, node2")

	edgehub(t, "resume", "ds/web", ns).expect(t, 3, "daemonset.apps/web resumed", "its circuit breaker holds it still", "node1, node2")
	if got := f.annotation(rollout.ContinueAnnotation); got != "" {
		t.Errorf("the annotation to go on is %q after the pause was ended, want none", got)
	}
	edgehub(t, "status", "ds/web", ns).expect(t, 3, "held             2  by the circuit breaker", "halted: ", "node1, node2")
	edgehub(t, "resume", "ds/web", ns).expect(t, 0, "goes on with revision "+revision, "node1, node2")
	if got := f.annotation(rollout.ContinueAnnotation); got != revision {
		t.Errorf("the annotation to go on is %q, want %s", got, revision)
	}
	edgehub(t, "status", "ds/web", ns).expect(t, 2, "pending          2", "updating: ")
}
