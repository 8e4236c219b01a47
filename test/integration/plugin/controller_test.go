package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// runController runs the controller until the end of the test.
func runController(t *testing.T) {
	t.Helper()
	// Nodes of this test have been Ready for long, and none is to be lost.
	env.deployed.StartController(t, controller.Options{
		Timing: rollout.Timing{NodeSettle: 100 * time.Millisecond}, Autonomy: &autonomy.Fleet{Defaults: autonomy.Same(300)},
	}, nil)
}

// The plugin's report, the conditions and what happens are the same.
func TestARolloutByTheController(t *testing.T) {
	f := newDaemonSet(t)
	runController(t)
	ns := "-n=" + f.Namespace
	wait := func(condition string) {
		t.Helper()
		kubectl(t, "wait", ns, "--for=condition="+condition, "--timeout=60s", "ds/web").expect(t, 0, "condition met")
	}
	wait("RolloutComplete")
	edgehub(t, "pause", "ds/web", ns).expect(t, 0, "paused")
	f.change("app:2")
	wait("RolloutProgressing=False")
	status := edgehub(t, "status", "ds/web", ns)
	status.expect(t, 3, "held             4  by the pause")
	if strings.Contains(status.out, "warning") {
		t.Errorf("the controller has spoken, and still there is a warning:\n%s", status.out)
	}
	w := start(t, "status", "ds/web", ns, "-w")
	w.sees("paused: ")
	edgehub(t, "resume", "ds/web", ns).expect(t, 0, "resumed")
	w.ends(0)
	if got := w.out.String(); !strings.Contains(got, "\ncomplete: 4 of 4") {
		t.Errorf("the watch has %q", got)
	}
	wait("RolloutComplete")

	kubectl(t, "rollout", "undo", "ds/web", ns).expect(t, 0, "rolled back")
	edgehub(t, "status", "ds/web", ns, "-w", "--timeout=60s").expect(t, 0, "complete: 4 of 4")
}
