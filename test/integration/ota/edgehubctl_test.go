package ota

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/ota/upgrade"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// Exit codes of edgehubctl, as documented in its help.
const (
	done   = 0
	broken = 5
)

// TestEdgehubctlTellsHowPodsAreDoing plays the kubelet of node1: it writes the statuses
// that a real one writes, and looks at what edgehubctl makes of them.
func TestEdgehubctlTellsHowPodsAreDoing(t *testing.T) {
	t.Parallel() // it waits for most of its time, as the other parallel one does
	c, admin := startCluster(t)
	ctl := &edgehubctl{program: buildEdgehubctl(t), address: strings.TrimPrefix(startAPI(t, c, "node1", "node1").url, "http://")}

	t.Run("pods have the status that kubectl shows", func(t *testing.T) { testPodsLikeKubectl(t, c, admin, ctl) })
	t.Run("an upgrade to a version that crashes", func(t *testing.T) { testUpgradeThatCrashes(t, admin, ctl) })
	t.Run("an upgrade to a version whose image is not there", func(t *testing.T) { testUpgradeWithoutImage(t, admin, ctl) })
	t.Run("an upgrade to a version that runs", func(t *testing.T) { testUpgradeThatRuns(t, admin, ctl) })
}

func buildEdgehubctl(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "edgehubctl")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/edgehubctl")
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return program
}

type edgehubctl struct{ program, address string }

// call is a run of edgehubctl under way.
type call struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  transcript // stdout and stderr, in the order in which they came
	done chan error // one result
}

func (e *edgehubctl) start(t *testing.T, args ...string) *call {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Patience)
	t.Cleanup(cancel)
	c := &call{t: t, cmd: exec.CommandContext(ctx, e.program, append(args, "--address", e.address)...), done: make(chan error, 1)}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.done <- c.cmd.Wait() }()
	return c
}

// awaitOutput waits until the output has words in it.
func (c *call) awaitOutput(words string) {
	c.t.Helper()
	poll.Eventually(c.t, fmt.Sprintf("edgehubctl says %q", words), func() bool {
		if strings.Contains(c.out.String(), words) {
			return true
		}
		if len(c.done) > 0 {
			c.t.Fatalf("edgehubctl has ended without saying %q:\n%s", words, c.out.String())
		}
		return false
	})
}

// ends checks the exit code, and that all words are in the output.
func (c *call) ends(code int, words ...string) {
	c.t.Helper()
	err, got := <-c.done, 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		c.t.Fatal(err)
	}
	if got != code {
		c.t.Errorf("got exit code %d, want %d", got, code)
	}
	for _, w := range words {
		if !strings.Contains(c.out.String(), w) {
			c.t.Errorf("%q is missing", w)
		}
	}
	if c.t.Failed() {
		c.t.Logf("output:\n%s", c.out.String())
	}
}

// transcript is safe for concurrent use.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// setStatus writes what the kubelet reports of a pod with one container, named app.
func setStatus(t *testing.T, admin kubernetes.Interface, name string, phase corev1.PodPhase, restarts int32, state corev1.ContainerState) {
	t.Helper()
	ready := state.Running != nil
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	app := corev1.ContainerStatus{Name: "app", Image: "app", Ready: ready, RestartCount: restarts, State: state}
	if restarts > 0 {
		app.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error", ContainerID: "containerd://0123456789abcdef"}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"phase":             phase,
		"conditions":        []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}},
		"containerStatuses": []corev1.ContainerStatus{app},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
}

func testPodsLikeKubectl(t *testing.T, c *cluster.Cluster, admin kubernetes.Interface, ctl *edgehubctl) {
	pod := lonePod(t, admin, "node1")
	for name, tt := range map[string]struct {
		phase    corev1.PodPhase
		restarts int32
		state    corev1.ContainerState
	}{
		"Running":           {corev1.PodRunning, 0, runs()},
		"restarted":         {corev1.PodRunning, 2, runs()},
		"ErrImagePull":      {corev1.PodPending, 0, waiting("ErrImagePull", "not found")},
		"CrashLoopBackOff":  {corev1.PodRunning, 4, waiting("CrashLoopBackOff", "back-off")},
		"ContainerCreating": {corev1.PodPending, 0, waiting("ContainerCreating", "")},
		"ended":             {corev1.PodRunning, 1, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 9}}},
	} {
		setStatus(t, admin, pod, tt.phase, tt.restarts, tt.state)
		want, err := c.Kubectl(t.Context(), "get", "pod", pod, "--no-headers")
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(want) // name, ready, status, restarts
		row := ""
		pods := ctl.start(t, "pods", "-o", "wide")
		pods.ends(done, "READY", "STATUS", "RESTARTS")
		for line := range strings.Lines(pods.out.String()) {
			if strings.Contains(line, pod) {
				row = line
			}
		}
		if got := strings.Fields(row); len(got) < 5 || got[2] != words[1] || got[3] != words[2] || got[4] != words[3] {
			t.Errorf("%s: edgehubctl says %q, kubectl %q", name, row, want)
		}
	}
}

// upgraded has edgehubctl upgrade a pod of a DaemonSet whose template has changed, plays its
// end, and returns its successor.
func upgraded(t *testing.T, admin kubernetes.Interface, ctl *edgehubctl, name string, minReadySeconds int32) (*call, *corev1.Pod) {
	t.Helper()
	old := daemonPods(t, admin, name)["node1"]
	sets := admin.AppsV1().DaemonSets(namespace)
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app.invalid/app:v2"}]}}}}`
	if _, err := sets.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	revision := newRevisionOf(t, admin, name, old)
	mark(t, admin, old, revision, minReadySeconds)

	ctl.start(t, "pods", "-o", "wide").ends(done, "yes, to "+revision, "app:v1 -> v2")
	wait := ctl.start(t, "upgrade", "--wait", namespace+"/"+old.Name)
	wait.awaitOutput("for pod " + namespace + "/" + old.Name + " to end")
	end(t, admin, old.Name)
	return wait, waitForPods(t, admin, name, 2)["node1"]
}

// newRevisionOf is the hash of the revision that is not that of the old pod.
func newRevisionOf(t *testing.T, admin kubernetes.Interface, name string, old *corev1.Pod) (hash string) {
	t.Helper()
	poll.Eventually(t, "DaemonSet "+name+" has a new revision", func() bool {
		list, err := admin.AppsV1().ControllerRevisions(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if h := list.Items[i].Labels[appsv1.ControllerRevisionHashLabelKey]; h != old.Labels[appsv1.ControllerRevisionHashLabelKey] {
				hash = h
			}
		}
		return hash != ""
	})
	return hash
}

// mark does what the controller does with a pod that needs an upgrade.
func mark(t *testing.T, admin kubernetes.Interface, pod *corev1.Pod, revision string, minReadySeconds int32) {
	t.Helper()
	target := upgrade.NewTarget(revision, &corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app.invalid/app:v2"}}})
	target.MinReadySeconds = minReadySeconds
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{upgrade.TargetAnnotation: target.Encode()}},
		"status": map[string]any{"conditions": []corev1.PodCondition{
			{Type: upgrade.NeedCondition, Status: corev1.ConditionTrue, Message: upgrade.Message(revision)},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Pods(namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func testUpgradeThatCrashes(t *testing.T, admin kubernetes.Interface, ctl *edgehubctl) {
	wait, successor := upgraded(t, admin, ctl, "crashing", 0)
	setStatus(t, admin, successor.Name, corev1.PodRunning, 0, runs())
	wait.awaitOutput("for pod " + namespace + "/" + successor.Name + " to stay Ready for 10s")
	setStatus(t, admin, successor.Name, corev1.PodRunning, 2, waiting("CrashLoopBackOff", "back-off 10s"))
	wait.ends(broken, "container app: CrashLoopBackOff, restarts: 2, last exit code 3",
		"kubectl logs "+successor.Name, "sudo edgehubctl logs --previous ", "kubectl rollout undo daemonset/crashing")
}

func testUpgradeWithoutImage(t *testing.T, admin kubernetes.Interface, ctl *edgehubctl) {
	wait, successor := upgraded(t, admin, ctl, "no-image", 0)
	setStatus(t, admin, successor.Name, corev1.PodPending, 0, waiting("ErrImagePull", "app.invalid/app:v2: not found"))
	wait.ends(broken, "container app: ErrImagePull: app.invalid/app:v2: not found", "kubectl describe pod "+successor.Name)
}

func testUpgradeThatRuns(t *testing.T, admin kubernetes.Interface, ctl *edgehubctl) {
	const minReadySeconds = 3
	wait, successor := upgraded(t, admin, ctl, "running", minReadySeconds)
	began := time.Now()
	setStatus(t, admin, successor.Name, corev1.PodRunning, 0, runs())
	wait.awaitOutput("for pod " + namespace + "/" + successor.Name + " to stay Ready for 3s")
	setStatus(t, admin, successor.Name, corev1.PodRunning, 1, runs()) // which ends that time
	wait.ends(done, "after 1 restart", "Pod "+namespace+"/"+successor.Name+" of revision "+successor.Labels[appsv1.ControllerRevisionHashLabelKey]+" is Ready", "has stayed so for 3s")
	if took := time.Since(began); took < minReadySeconds*time.Second {
		t.Errorf("it was called stable after %v", took)
	}
}
