package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

func TestStatusOfARolloutInTheMiddle(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced, rollout.MaxUnavailableAnnotation: "1"})
	edgehub(t, "status", "ds/web", "-n", f.namespace).expect(t, 0, "updated          4  of 4", "complete: ")

	f.change("app:v2")
	f.replace("node1")
	f.cutOff("node4")
	f.change("app:broken")
	env.fleet.Break("app:broken")
	t.Cleanup(func() { env.fleet.Mend("app:broken") })
	f.replace("node2")
	status := edgehub(t, "status", "ds/web", "-n", f.namespace)
	status.expect(t, 2,
		"daemonset.apps/web in "+f.namespace+": AdvancedRollingUpdate to revision "+f.revision("node2"),
		"updated          0  of 4",
		"unavailable      1  container app: ImagePullBackOff (node2)",
		"pending          2  1 of at most 1 unavailable (1 of 3 Ready nodes)",
		"not ready        1  node4",
		"held             0",
		"updating: it goes on when the controller runs",
	)
	if strings.ContainsAny(status.out, "[\x1b") {
		t.Errorf("there is a bar, or a control sequence, on what is no terminal:\n%q", status.out)
	}
	edgehub(t, "status", "ds/web", "-n", f.namespace, "--nodes").expect(t, 2,
		"NODE ", "node2   unavailable         "+f.pod("node2").Name, "node4   waiting_not_ready   ")

	f.change("app:v2") // take it back
	f.replace("node2")
	edgehub(t, "status", "ds/web", "-n", f.namespace).expect(t, 2, "updated          2  of 4", "pending          1")
	f.replace("node3")
	edgehub(t, "status", "ds/web", "-n", f.namespace).expect(t, 2, "updated          3  of 4", "waiting: every Ready node is updated")
	edgehub(t, "status", "ds/web", "-n", f.namespace, "-w", "--ready-only").expect(t, 0, "waiting: 3 of 4 nodes updated")
	if err := env.fleet.Connect(t.Context(), "node4"); err != nil {
		t.Fatal(err)
	}
	f.replace("node4")
	edgehub(t, "status", "ds/web", "-n", f.namespace).expect(t, 0, "complete: ")
}

// cutOff takes a node away until the end of the test.
func (f *fixture) cutOff(node string) {
	f.t.Helper()
	if err := env.fleet.CutOff(f.t.Context(), node); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := env.fleet.Connect(context.WithoutCancel(f.t.Context()), node); err != nil {
			f.t.Error(err)
		}
	})
}

func TestJSONForScripts(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced, rollout.PartitionAnnotation: "3"})
	f.change("app:v2")
	f.replace("node3")
	got := edgehub(t, "status", "ds/web", "-n", f.namespace, "-o", "json")
	got.expect(t, 0)
	var report struct {
		State          string
		TargetRevision string
		Counts         map[string]int
		Nodes          []struct{ Node, State, Pod, Revision string }
	}
	if err := json.Unmarshal([]byte(got.out), &report); err != nil {
		t.Fatalf("decode %q: %v", got.out, err)
	}
	if report.State != "held" || report.Counts["updated"] != 1 || report.Counts["held_by_partition"] != 3 || len(report.Nodes) != 4 {
		t.Errorf("got %+v", report)
	}
	if n := report.Nodes[2]; n.Node != "node3" || n.State != "updated" || n.Revision != report.TargetRevision || n.Pod != f.pod("node3").Name {
		t.Errorf("got %+v for node3", n)
	}
}

func TestStatusOfOTA(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	f.change("app:v2")
	f.replace("node1")
	edgehub(t, "status", "ds/web", "-n", f.namespace).expect(t, 2,
		": OTA to revision ", "updated          1  of 4", "for owners       3  node2, node3, node4",
		"waiting: the owner of a node upgrades its pod", "has not yet told 4 pods")
	for _, verb := range []string{"pause", "resume"} {
		edgehub(t, verb, "ds/web", "-n", f.namespace).expect(t, 1, "asks for OTA", "nothing to pause or resume")
	}
}

func TestAWatchEndsWhenAllIsDone(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	f.change("app:v2")
	w := start(t, "status", "ds/web", "-n", f.namespace, "-w")
	w.sees("updating: 0 of 4 nodes updated")
	for i, node := range nodeNames {
		f.replace(node)
		w.sees(fmt.Sprintf("%d of 4 nodes updated", i+1))
	}
	w.ends(0)
	if last := lastLine(w.out.String()); !strings.HasPrefix(last, "complete: 4 of 4 nodes updated") {
		t.Errorf("the last line is %q", last)
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func TestAWatchThatIsInJSON(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	f.change("app:v2")
	w := start(t, "status", "ds/web", "-n", f.namespace, "-w", "-o", "json")
	w.sees(`"state":"updating"`)
	for _, node := range nodeNames {
		f.replace(node)
	}
	w.ends(0)
	for line := range strings.Lines(w.out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %q", line)
		}
	}
	if last := lastLine(w.out.String()); !strings.Contains(last, `"state":"complete"`) {
		t.Errorf("the last line is %q", last)
	}
}

func TestAWatchEndsWithItsTimeout(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	f.change("app:v2")
	edgehub(t, "status", "ds/web", "-n", f.namespace, "-w", "--timeout=2s").expect(t, 2, "error: timed out after 2s: 0 of 4 nodes updated")
	f.patch(`{"metadata":{"annotations":{%q:"true"}}}`, rollout.PausedAnnotation)
	edgehub(t, "status", "ds/web", "-n", f.namespace, "-w", "--timeout=2s").expect(t, 3, "paused: ", "error: timed out after 2s")
}

func TestAWatchEndsWithItsPerson(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	f.change("app:v2")
	w := start(t, "status", "ds/web", "-n", f.namespace, "-w")
	w.sees("updating: ")
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	w.ends(2)
	if strings.Contains(w.out.String(), "error") {
		t.Errorf("an interrupt is no error:\n%s", w.out)
	}
}

func TestAWatchEndsWithItsDaemonSet(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	f.change("app:v2")
	w := start(t, "status", "ds/web", "-n", f.namespace, "-w")
	w.sees("updating: ")
	f.remove()
	w.ends(1)
	if !strings.Contains(w.out.String(), "daemonset "+f.namespace+"/web has been deleted") {
		t.Errorf("the output does not say so:\n%s", w.out)
	}
}

// A watch outlives the apiserver it watches.
func TestAWatchOutlivesTheAPIServer(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	f.change("app:v2")
	w := start(t, "status", "ds/web", "-n", f.namespace, "-w")
	w.sees("updating: ")
	if err := env.cluster.APIServer().Kill(); err != nil {
		t.Fatal(err)
	}
	if err := env.cluster.APIServer().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the apiserver answers", func() bool {
		_, err := env.admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	for _, node := range nodeNames {
		f.replace(node)
	}
	w.ends(0)
}

func TestAControllerThatDoesNotRunIsTold(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	const warning = "warning: the controller seems not to run"
	if got := edgehub(t, "status", "ds/web", "-n", f.namespace); strings.Contains(got.out, warning) {
		t.Errorf("there is nothing to do, and still a warning:\n%s", got.out)
	}
	f.change("app:v2")
	edgehub(t, "status", "ds/web", "-n", f.namespace).expect(t, 2, warning, "there is no lease edgehub-controller")
}

func TestQuestionsWithoutAnAnswer(t *testing.T) {
	f := newDaemonSet(t, nil)
	edgehub(t, "status", "ds/web", "-n", f.namespace).expect(t, 1, "error: daemonset "+f.namespace+"/web has not opted into an update strategy", "kubectl rollout status")
	edgehub(t, "pause", "ds/web", "-n", f.namespace).expect(t, 1, "has not opted into")
	edgehub(t, "status", "ds/nobody", "-n", f.namespace).expect(t, 1, `error: daemonsets.apps "nobody" not found`)
	edgehub(t, "status", "ds/web", "-n", f.namespace, "--as=nobody").expect(t, 1, "forbidden", `"nobody"`)
	edgehub(t, "status", "ds/web", "--server=https://127.0.0.1:1").expect(t, 1, "connection refused")
	f.patch(`{"metadata":{"annotations":{%q:"advanced"}}}`, strategyKey)
	edgehub(t, "status", "ds/web", "-n", f.namespace, "-w").expect(t, 3, `is "advanced", which is no update strategy`)
	f.patch(`{"metadata":{"annotations":{%q:%q,%q:"abc"}}}`, strategyKey, advanced, rollout.MaxUnavailableAnnotation)
	edgehub(t, "status", "ds/web", "-n", f.namespace).expect(t, 3, "invalid: annotation "+rollout.MaxUnavailableAnnotation+` is "abc"`)
}

func TestWaysToNameTheDaemonSetAndTheCluster(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	for _, words := range [][]string{
		{"ds/web"}, {"ds", "web"}, {"daemonset/web"}, {"daemonset.apps/web"}, {"daemonset", "web"},
	} {
		edgehub(t, append([]string{"status", "--namespace", f.namespace}, words...)...).expect(t, 0, "complete: ")
	}
	edgehub(t, "-n", f.namespace, "status", "ds/web", "--kubeconfig", env.cluster.Kubeconfig()).expect(t, 0, "complete: ")
	edgehub(t, "status", "ds/web", "-n="+f.namespace, "--context", "nowhere").expect(t, 1, "nowhere")

	config := t.TempDir() + "/config" // whose context has a namespace
	kubectl(t, "config", "view", "--raw", "--flatten").write(t, config)
	kubectl(t, "config", "set-context", "--current", "--namespace="+f.namespace, "--kubeconfig="+config).expect(t, 0, "")
	edgehub(t, "status", "ds/web", "--kubeconfig="+config).expect(t, 0, "daemonset.apps/web in "+f.namespace)
}

// The rights are those that the help names, and no more.
func TestFewRightsAreEnough(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	f.change("app:v2")
	ns := "-n=" + f.namespace
	kubectl(t, "create", "role", "watch-rollouts", ns, "--verb=get,list,watch", "--resource=daemonsets.apps,controllerrevisions.apps,pods").expect(t, 0, "")
	kubectl(t, "create", "clusterrole", "watch-nodes", "--verb=list,watch", "--resource=nodes").expect(t, 0, "")
	kubectl(t, "create", "rolebinding", "watch-rollouts", ns, "--role=watch-rollouts", "--user=watcher").expect(t, 0, "")
	kubectl(t, "create", "clusterrolebinding", "watch-nodes", "--clusterrole=watch-nodes", "--user=watcher").expect(t, 0, "")
	edgehub(t, "status", "ds/web", ns, "--as=watcher").expect(t, 2, "updated          0  of 4")
	edgehub(t, "pause", "ds/web", ns, "--as=watcher").expect(t, 1, "forbidden", "patch")

	kubectl(t, "create", "role", "steer-rollouts", ns, "--verb=get,patch", "--resource=daemonsets.apps").expect(t, 0, "")
	kubectl(t, "create", "rolebinding", "steer-rollouts", ns, "--role=steer-rollouts", "--user=helmsman").expect(t, 0, "")
	edgehub(t, "pause", "ds/web", ns, "--as=helmsman").expect(t, 0, "paused")
	edgehub(t, "resume", "ds/web", ns, "--as=helmsman").expect(t, 0, "resumed")
}

// A node that should not run the daemon is not counted.
func TestNodesThatShouldNotRunItAreLeftOut(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: advanced})
	f.patch(`{"spec":{"template":{"spec":{"nodeSelector":{%q:"node1"}}}}}`, corev1.LabelHostname)
	poll.Eventually(t, "the other nodes' pods are gone", func() bool { return f.pod("node2") == nil && f.pod("node3") == nil && f.pod("node4") == nil })
	edgehub(t, "status", "ds/web", "-n", f.namespace).expect(t, 2, "updated          0  of 1")
}
