package rollback_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

// node is a node with a hub, and the only pod of a DaemonSet.
type node struct {
	*rolloutenv.DaemonSet
	hub *hubproc.Hub
	t   *testing.T
}

// newNode starts all of it, with the strategy OTA and image app:1.
func newNode(t *testing.T) *node {
	t.Helper()
	hub := hubproc.New(t, hubproc.Options{Binary: hubBin, Server: s.Cluster.ServerURL()})
	hub.IdentifyAs(s.Cluster, "system:nodes")
	if err := s.Fleet.AddNode(t.Context(), hub.Name, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Fleet.RemoveNode(context.Background(), hub.Name); err != nil {
			t.Error(err)
		}
	})
	hub.Start()
	// It narrows the controller's rights, and lets it ask for the next pod.
	if err := s.ApplyAdmission(t.Context(), moduleRoot); err != nil {
		t.Fatal(err)
	}
	s.StartController(t, controller.Options{Namespace: "edgehub-system"}, nil)
	ds := s.NewDaemonSet(t, map[string]string{"apps.openyurt.io/update-strategy": "OTA"}, func(ds *appsv1.DaemonSet) {
		ds.Spec.RevisionHistoryLimit = new(int32(10))
	})
	n := &node{DaemonSet: ds, hub: hub, t: t}
	n.waitFor("the hub has recorded the first revision", func(pod *corev1.Pod) bool { return n.recorded(hash(pod)) })
	return n
}

// pod returns the node's pod, nil while there is none.
func (n *node) pod() *corev1.Pod { return n.Pods()[n.hub.Name] }

func (n *node) waitFor(what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	n.t.Helper()
	var pod *corev1.Pod
	defer func() {
		if n.t.Failed() && pod != nil {
			n.t.Logf("not: %s: pod %v, annotations %v, conditions %v", what, pod.Labels, pod.Annotations, pod.Status.Conditions)
		}
	}()
	poll.Eventually(n.t, what, func() bool {
		pod = n.pod()
		return pod != nil && holds(pod)
	})
	return pod
}

func (n *node) call(method, path string) (code int, body string) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), method, n.hub.API+path, http.NoBody)
	if err != nil {
		n.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (n *node) history() []api.Revision {
	n.t.Helper()
	code, body := n.call(http.MethodGet, api.HistoryPath(n.Namespace, n.pod().Name))
	var list api.History
	if code != http.StatusOK || json.Unmarshal([]byte(body), &list) != nil {
		return nil // the pod is being replaced
	}
	return list.Items
}

// recorded reports whether the hub remembers that the node has run a revision. Its API shows the current
// one at once, and the hub notices changes of pods up to 100 ms later.
func (n *node) recorded(revision string) bool {
	n.t.Helper()
	file := filepath.Join(n.hub.Root, "upgrades", "history", n.Namespace+"_"+string(n.Get().UID)+".json")
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	return bytes.Contains(text, []byte(`{"revision":"`+revision+`","containers":`))
}

// upgrade rolls out a change, and has the owner upgrade the pod. It returns the new pod.
func (n *node) upgrade(change string) *corev1.Pod {
	n.t.Helper()
	n.Patch(`{"spec":{"template":{"spec":{"containers":[{"name":"app",%s}]}}}}`, change)
	before := n.waitFor("the pod needs an upgrade", func(pod *corev1.Pod) bool {
		need := api.Condition(pod, api.NeedCondition)
		return need != nil && need.Status == corev1.ConditionTrue && hash(pod) != api.RevisionOf(need) && need.Reason == "UpgradeAvailable"
	})
	return n.replace(before)
}

// replace has the owner upgrade the pod.
func (n *node) replace(before *corev1.Pod) *corev1.Pod {
	n.t.Helper()
	if code, body := n.call(http.MethodPost, api.UpgradePath(n.Namespace, before.Name)); code != http.StatusOK {
		n.t.Fatalf("upgrade: got %d %q", code, body)
	}
	return n.waitFor("the next pod is Ready, marked, and in the history", func(pod *corev1.Pod) bool {
		ready, need := api.Condition(pod, corev1.PodReady), api.Condition(pod, api.NeedCondition)
		list := n.history()
		return pod.UID != before.UID && ready != nil && ready.Status == corev1.ConditionTrue &&
			need != nil && api.RevisionOf(need) == hash(pod) && n.recorded(hash(pod)) && len(list) > 1 && list[0].Revision == hash(pod)
	})
}

// rollback posts a rollback and fails the test unless the answer has this code and text.
func (n *node) rollback(pod *corev1.Pod, code int, words string) {
	n.t.Helper()
	if got, body := n.call(http.MethodPost, api.RollbackPath(n.Namespace, pod.Name)); got != code || !strings.Contains(body, words) {
		n.t.Fatalf("rollback: got %d %q, want %d %q", got, body, code, words)
	}
}

// shows waits until the hub shows the pod's rollback with this state and message.
func (n *node) shows(pod *corev1.Pod, state api.UpgradeState, words string) {
	n.t.Helper()
	var body string
	defer func() {
		if n.t.Failed() {
			n.t.Logf("the hub shows %s", body)
		}
	}()
	poll.Eventually(n.t, "the hub shows the rollback as "+string(state), func() bool {
		_, body = n.call(http.MethodGet, api.UpgradePath(n.Namespace, pod.Name))
		var u api.Upgrade
		return json.Unmarshal([]byte(body), &u) == nil && u.Action == api.RollbackAction && u.State == state && strings.Contains(u.Message, words)
	})
}

// rolledBack waits for the controller's answer.
func (n *node) rolledBack(status corev1.ConditionStatus, reason string) *corev1.Pod {
	n.t.Helper()
	return n.waitFor(fmt.Sprintf("PodRolledBack is %s, %s", status, reason), func(pod *corev1.Pod) bool {
		c := api.Condition(pod, api.RolledBackCondition)
		return c != nil && c.Status == status && c.Reason == reason
	})
}

func hash(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

func wished(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[api.RollbackAnnotation]
	return ok
}

func TestAnOwnerGoesBackAndUpgradesAgain(t *testing.T) {
	n := newNode(t)
	v1 := hash(n.pod())
	n.rollback(n.pod(), http.StatusConflict, "no earlier revision")
	pod := n.upgrade(`"image":"app:2"`)
	n.rollback(pod, http.StatusAccepted, "to revision "+v1+" requested")
	back := n.rolledBack(corev1.ConditionTrue, "RolledBackByOwner")
	if back.UID != pod.UID || hash(back) != v1 || back.Spec.Containers[0].Image != "app:1" || !wished(back) {
		t.Errorf("the pod has image %s, revision %s and annotations %v", back.Spec.Containers[0].Image, hash(back), back.Annotations)
	}
	poll.Eventually(t, "the DaemonSet controller counts the pod, and not as updated", func() bool {
		status := n.Get().Status
		return status.CurrentNumberScheduled == 1 && status.UpdatedNumberScheduled == 0
	})
	n.waitFor("its owner can upgrade it again", func(pod *corev1.Pod) bool {
		need := api.Condition(pod, api.NeedCondition)
		return need != nil && need.Status == corev1.ConditionTrue && need.Reason == "RolledBackByOwner" && pod.UID == back.UID
	})
	n.waitFor("the history has the earlier revision as the current", func(*corev1.Pod) bool {
		list := n.history()
		return len(list) == 2 && list[0].Revision == v1 && list[0].Current && !list[0].Retained
	})
	n.hub.Kill()
	n.hub.Start()
	n.shows(back, api.Done, "")
	again := n.replace(back)
	if hash(again) != hash(pod) || wished(again) {
		t.Errorf("after the upgrade: revision %s, want %s; annotations %v", hash(again), hash(pod), again.Annotations)
	}
}

func TestARollbackIsRefusedIfMoreThanImagesDiffer(t *testing.T) {
	n := newNode(t)
	pod := n.upgrade(`"image":"app:2","env":[{"name":"A","value":"B"}]`)
	const words = "not only images would change: spec.containers differs"
	if list := n.history(); len(list) != 2 || !strings.Contains(list[1].Blocked, words) {
		t.Errorf("the history is %+v", list)
	}
	n.rollback(pod, http.StatusConflict, words)
	if now := n.pod(); wished(now) || hash(now) != hash(pod) || now.Spec.Containers[0].Image != "app:2" {
		t.Errorf("the pod was changed: revision %s, image %s, annotations %v", hash(now), now.Spec.Containers[0].Image, now.Annotations)
	}
}

// The wish is made without the cloud, survives kill -9, and ends with the next revision.
func TestARollbackWaitsForTheCloudAndEndsWithTheNextRevision(t *testing.T) {
	n := newNode(t)
	pod := n.upgrade(`"image":"app:2"`)
	if err := n.hub.Link.Refuse(); err != nil {
		t.Fatal(err)
	}
	n.hub.Link.Reset()
	poll.Eventually(t, "the hub is offline", func() bool {
		_, body := n.call(http.MethodGet, api.Readyz)
		return strings.Contains(body, "offline")
	})
	n.rollback(pod, http.StatusAccepted, "queued: it starts when the cloud can be reached")
	n.hub.Kill()
	n.hub.Start()
	n.shows(pod, api.WaitingForCloud, "when the cloud can be reached")
	if wished(n.pod()) {
		t.Error("the cloud has the wish of a node that cannot reach it")
	}
	if err := n.hub.Link.Up(); err != nil {
		t.Fatal(err)
	}
	back := n.rolledBack(corev1.ConditionTrue, "RolledBackByOwner")
	n.SetImage("app:3")
	ended := n.waitFor("the wish is over", func(pod *corev1.Pod) bool { return !wished(pod) })
	if ended.UID != back.UID || ended.Spec.Containers[0].Image != "app:1" {
		t.Errorf("the pod was changed: image %s", ended.Spec.Containers[0].Image)
	}
	n.waitFor("the pod can be upgraded to the next revision", func(pod *corev1.Pod) bool {
		need := api.Condition(pod, api.NeedCondition)
		return need != nil && need.Status == corev1.ConditionTrue && need.Reason == "UpgradeAvailable"
	})
	n.replace(ended)
}

// An upgrade that was offered is refused if admission refuses the next pod by now, in the apiserver's words, or another pod
// would take its place on the node; and goes on once that is over.
func TestAnOwnersUpgradeIsRefusedByAdmissionOfNow(t *testing.T) {
	n := newNode(t)
	n.Patch(`{"spec":{"template":{"spec":{"volumes":[{"name":"h","hostPath":{"path":"/tmp"}}],"containers":[{"name":"app","image":"app:2"}]}}}}`)
	before := n.waitFor("the upgrade is offered", func(pod *corev1.Pod) bool {
		target, ok, err := api.TargetOf(pod)
		return ok && err == nil && target.Asks && target.Blocked == ""
	})
	const label = "pod-security.kubernetes.io/enforce"
	kubectl := func(args ...string) {
		t.Helper()
		if _, err := s.Cluster.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	kubectl("label", "namespace", n.Namespace, label+"=baseline")
	poll.Eventually(t, "admission refuses a pod", func() bool {
		_, err := s.Admin.CoreV1().Pods(n.Namespace).Create(t.Context(),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "another"}, Spec: n.Get().Spec.Template.Spec}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
	code, body := n.call(http.MethodPost, api.UpgradePath(n.Namespace, before.Name))
	if code != http.StatusForbidden || !strings.Contains(body, `would not come back: the apiserver refuses the new version: violates PodSecurity "baseline:latest": hostPath volumes`) {
		t.Errorf("got %d %q", code, body)
	}
	if n.pod().UID != before.UID {
		t.Fatal("the pod was deleted all the same")
	}
	kubectl("label", "namespace", n.Namespace, label+"-")
	offered := func() {
		t.Helper()
		n.waitFor("the upgrade is offered again", func(pod *corev1.Pod) bool {
			target, ok, err := api.TargetOf(pod)
			return ok && err == nil && target.Blocked == ""
		})
	}
	offered()

	// The node has a place for one pod, and another waits for that.
	kubectl("patch", "node", n.hub.Name, "--subresource=status", "-p", `{"status":{"allocatable":{"pods":"1"},"capacity":{"pods":"1"}}}`)
	waits := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Spec: corev1.PodSpec{
		Containers:  []corev1.Container{{Name: "c", Image: "app.invalid/app:1"}},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{n.hub.Name}},
			}}},
		}}},
	}}
	if _, err := s.Admin.CoreV1().Pods(n.Namespace).Create(t.Context(), waits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the scheduler has found no room for it", func() bool {
		pod, err := s.Admin.CoreV1().Pods(n.Namespace).Get(t.Context(), waits.Name, metav1.GetOptions{})
		c := api.Condition(pod, corev1.PodScheduled)
		return err == nil && c != nil && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "Too many pods")
	})
	code, body = n.call(http.MethodPost, api.UpgradePath(n.Namespace, before.Name))
	if code != http.StatusForbidden || !strings.Contains(body, "would not come back: pod "+n.Namespace+"/waits, which waits for a node, may take the room") {
		t.Errorf("got %d %q", code, body)
	}
	if n.pod().UID != before.UID {
		t.Fatal("the pod was deleted all the same")
	}
	kubectl("delete", "pod", "-n", n.Namespace, waits.Name)
	offered()
	n.replace(before)
}
