package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// runController runs the controller until the end of the test.
func runController(t *testing.T) {
	t.Helper()
	// Nodes of this test have been Ready for long, and none is to be lost.
	env.deployed.StartController(t, controller.Options{
		Timing: rollout.Timing{NodeSettle: 100 * time.Millisecond}, Autonomy: &autonomy.Fleet{Defaults: autonomy.Same(300)},
	}, nil)
}

// The plugin says what the controller does, also right after a change, and what happens is the same.
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
	start(t, "status", "ds/web", ns, "-w", "--timeout=60s").sees("paused: ")
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

	// A script asks at once, and must not get the answer of before.
	kubectl(t, "annotate", "ds/web", ns, api.PartitionAnnotation+"=2").expect(t, 0, "annotated")
	f.change("app:3")
	edgehub(t, "status", "ds/web", ns, "-w", "--timeout=60s").expect(t, 0, "held: 2 of 4")
	kubectl(t, "annotate", "ds/web", ns, api.PartitionAnnotation+"=0", "--overwrite").expect(t, 0, "annotated")
	edgehub(t, "status", "ds/web", ns, "-w", "--timeout=60s").expect(t, 0, "complete: 4 of 4")
}
