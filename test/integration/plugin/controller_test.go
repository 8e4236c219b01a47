package plugin

import (
	"context"
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
	c, err := controller.New(env.admin, controller.Options{
		Timing: rollout.Timing{NodeSettle: 100 * time.Millisecond}, Autonomy: &autonomy.Fleet{DefaultSeconds: 300},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1) // one result
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The plugin's report, the conditions and what happens are the same.
func TestARolloutByTheController(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	runController(t)
	ns := "-n=" + f.namespace
	wait := func(condition string) {
		t.Helper()
		kubectl(t, "wait", ns, "--for=condition="+condition, "--timeout=60s", "ds/web").expect(t, 0, "condition met")
	}
	wait("RolloutComplete")
	edgehub(t, "pause", "ds/web", ns).expect(t, 0, "paused")
	f.change("app:v2")
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
	if last := lastLine(w.out.String()); !strings.HasPrefix(last, "complete: 4 of 4") {
		t.Errorf("the last line is %q", last)
	}
	wait("RolloutComplete")

	kubectl(t, "taint", "node", "node2", "dedicated=line3:NoSchedule").expect(t, 0, "tainted")
	t.Cleanup(func() { _ = command(context.Background(), "taint", "node", "node2", "dedicated-").Run() }) // it may be gone
	f.change("app:v3")
	edgehub(t, "status", "ds/web", ns, "-w", "--timeout=60s").expect(t, 0,
		"complete: 3 of 4 nodes updated, 1 pod held by placement (node node2 has the taint dedicated=line3:NoSchedule")
	wait("RolloutComplete")
	edgehub(t, "status", "ds/web", ns).expect(t, 0, "held             1  by placement\ncomplete: 1 pod held by placement (node node2 has the taint")
	kubectl(t, "taint", "node", "node2", "dedicated-").expect(t, 0, "untainted")
	edgehub(t, "status", "ds/web", ns, "-w", "--timeout=60s").expect(t, 0, "complete: 4 of 4")

	kubectl(t, "rollout", "undo", "ds/web", ns).expect(t, 0, "rolled back")
	edgehub(t, "status", "ds/web", ns, "-w", "--timeout=60s").expect(t, 0, "complete: 4 of 4")
}
