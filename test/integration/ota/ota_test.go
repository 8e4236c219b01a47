package ota

import (
	"encoding/json"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

func need(status corev1.ConditionStatus) corev1.PodCondition {
	return corev1.PodCondition{Type: upgrade.NeedCondition, Status: status, Message: upgrade.Message("new")}
}

func image(status corev1.ConditionStatus, revision string) corev1.PodCondition {
	return corev1.PodCondition{Type: upgrade.ImageCondition, Status: status, Message: upgrade.Message(revision)}
}

// One control plane serves all cases; each has a DaemonSet of its own. The last
// takes the apiserver away.
func TestAgainstARealAPIServer(t *testing.T) {
	c, admin := startCluster(t)
	node1 := startAPI(t, c, "node1", "node1")

	t.Run("an upgrade deletes the pod once", func(t *testing.T) { testUpgrade(t, admin, startAPI(t, c, "node1", "node1")) })
	t.Run("many upgrades at once delete the pod once", func(t *testing.T) { testAtOnce(t, admin, startAPI(t, c, "node1", "node1")) })
	t.Run("each refusal", func(t *testing.T) { testRefusals(t, admin, startAPI(t, c, "node1", "node1")) })
	t.Run("pods lists this node's", func(t *testing.T) { testPods(t, admin, node1) })
	t.Run("a node that may not is told so", func(t *testing.T) {
		stranger := startAPI(t, c, "node1", "node2")
		expect(t, stranger.upgrade(t.Context(), "any"), http.StatusInternalServerError, "forbidden")
		expect(t, stranger.call(t.Context(), http.MethodGet, "/pods"), http.StatusInternalServerError, "forbidden")
	})
	t.Run("while the cloud is away", func(t *testing.T) {
		pod := daemonPods(t, admin, "away")["node1"]
		setConditions(t, admin, pod, need(corev1.ConditionTrue))
		if err := c.APIServer().Kill(); err != nil {
			t.Fatal(err)
		}
		expect(t, node1.upgrade(t.Context(), pod.Name), http.StatusServiceUnavailable, "cloud cannot be reached")
		expect(t, node1.call(t.Context(), http.MethodGet, "/pods"), http.StatusServiceUnavailable, "cloud cannot be reached")
		expect(t, node1.call(t.Context(), http.MethodGet, "/v1/healthz"), http.StatusOK, "OK")
		if err := c.APIServer().Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, node1.upgrade(t.Context(), pod.Name), http.StatusOK, "Start updating pod default/"+pod.Name)
	})
}

func testUpgrade(t *testing.T, admin kubernetes.Interface, node1 *api) {
	pods := daemonPods(t, admin, "once")
	old := pods["node1"]
	setConditions(t, admin, old, need(corev1.ConditionTrue), image(corev1.ConditionTrue, "new"))

	expect(t, node1.upgrade(t.Context(), old.Name), http.StatusOK, "Start updating pod default/"+old.Name)
	if pod := get(t, admin, old.Name); pod.DeletionTimestamp == nil || pod.UID != old.UID || *pod.DeletionGracePeriodSeconds != *old.Spec.TerminationGracePeriodSeconds {
		t.Errorf("the pod is not being deleted in its own time: %+v", pod.ObjectMeta)
	}
	expect(t, node1.upgrade(t.Context(), old.Name), http.StatusForbidden, "being deleted already")
	if n := node1.deletions.Load(); n != 1 {
		t.Errorf("%d deletions took effect, want one", n)
	}

	end(t, admin, old.Name) // what its kubelet would do
	successor := waitForPods(t, admin, "once", 2)["node1"]
	if successor.UID == old.UID {
		t.Fatalf("the DaemonSet made no new pod in place of %s", old.Name)
	}
	expect(t, node1.upgrade(t.Context(), old.Name), http.StatusNotFound, "there is no pod default/"+old.Name)
	expect(t, node1.upgrade(t.Context(), successor.Name), http.StatusForbidden, "no condition PodNeedUpgrade")
	if pod := get(t, admin, pods["node2"].Name); pod.DeletionTimestamp != nil {
		t.Error("the pod on the other node is being deleted too")
	}
}

func testAtOnce(t *testing.T, admin kubernetes.Interface, node1 *api) {
	pod := daemonPods(t, admin, "at-once")["node1"]
	setConditions(t, admin, pod, need(corev1.ConditionTrue))

	const callers = 10
	answers := make(chan answer, callers) // one for each caller; never closed
	for range callers {
		go func() { answers <- node1.upgrade(t.Context(), pod.Name) }()
	}
	got := map[int]int{}
	for range callers {
		got[(<-answers).code]++
	}
	if got[http.StatusOK] != 1 || got[http.StatusForbidden] != callers-1 {
		t.Errorf("got answers %v, want one 200 and %d times 403", got, callers-1)
	}
	if n := node1.deletions.Load(); n != 1 {
		t.Errorf("%d deletions took effect, want one", n)
	}
}

func testRefusals(t *testing.T, admin kubernetes.Interface, node1 *api) {
	daemon := func(app, node string, conditions ...corev1.PodCondition) func(t *testing.T) string {
		return func(t *testing.T) string {
			pod := daemonPods(t, admin, app)[node]
			setConditions(t, admin, pod, conditions...)
			return pod.Name
		}
	}
	named := func(name string) func(*testing.T) string { return func(*testing.T) string { return name } }

	tests := map[string]struct {
		pod  func(t *testing.T) string // makes it, and returns its name
		code int
		says string
	}{
		"a pod that does not exist":    {named("nobody"), 404, "there is no pod default/nobody"},
		"a pod on another node":        {daemon("other-node", "node2", need(corev1.ConditionTrue)), 403, "not on this node, node1"},
		"a pod no one marked":          {daemon("unmarked", "node1"), 403, "no condition PodNeedUpgrade"},
		"a pod at the newest revision": {daemon("newest", "node1", need(corev1.ConditionFalse)), 403, "needs no upgrade"},
		"images that are being pulled": {
			daemon("pulling", "node1", need(corev1.ConditionTrue), image(corev1.ConditionFalse, "new")), 403, "not on this node yet",
		},
		"images of another revision": {
			daemon("stale", "node1", need(corev1.ConditionTrue), image(corev1.ConditionTrue, "old")), 403, `of revision "old"`,
		},
		"a pod being deleted, before all else": {
			func(t *testing.T) string {
				name := daemon("deleting", "node1")(t)
				if err := admin.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				return name
			}, 403, "being deleted already",
		},
		"a pod without owner": {
			func(t *testing.T) string { return lonePod(t, admin, "node1", need(corev1.ConditionTrue)) }, 400, "no controlling owner",
		},
		"a pod of a ReplicaSet": {
			func(t *testing.T) string { return replica(t, admin, "node1", need(corev1.ConditionTrue)) }, 400, "belongs to ReplicaSet",
		},
		"a pod on no node yet": {
			func(t *testing.T) string { return lonePod(t, admin, "") }, 403, "not on this node, node1",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := tt.pod(t)
			before := version(t, admin, pod)
			expect(t, node1.upgrade(t.Context(), pod), tt.code, tt.says)
			if after := version(t, admin, pod); after != before {
				t.Errorf("the refused request changed the pod: resourceVersion %q before, %q after", before, after)
			}
		})
	}
	if n := node1.deletions.Load(); n != 0 {
		t.Errorf("%d deletions were accepted, want none", n)
	}
	t.Run("a namespace that does not exist", func(t *testing.T) {
		got := node1.call(t.Context(), http.MethodPost, "/openyurt.io/v1/namespaces/nowhere/pods/nobody/upgrade")
		expect(t, got, http.StatusNotFound, "there is no pod nowhere/nobody")
	})
}

func testPods(t *testing.T, admin kubernetes.Interface, node1 *api) {
	pods := daemonPods(t, admin, "listed")
	setConditions(t, admin, pods["node1"], need(corev1.ConditionTrue))

	got := node1.call(t.Context(), http.MethodGet, "/pods")
	expect(t, got, http.StatusOK, "")
	var list corev1.PodList
	if err := json.Unmarshal([]byte(got.body), &list); err != nil {
		t.Fatalf("decode %q: %v", got.body, err)
	}
	if list.APIVersion != "v1" || list.Kind != "PodList" || list.ResourceVersion == "" {
		t.Errorf("got %s %s at %q, want a v1 PodList", list.APIVersion, list.Kind, list.ResourceVersion)
	}
	var found *corev1.Pod
	for i, pod := range list.Items {
		if pod.Spec.NodeName != "node1" {
			t.Errorf("pod %s is on node %q", pod.Name, pod.Spec.NodeName)
		}
		if pod.UID == pods["node1"].UID {
			found = &list.Items[i]
		}
	}
	if found == nil {
		t.Fatalf("pod %s is not among the %d listed", pods["node1"].Name, len(list.Items))
	}
	if c := upgrade.Condition(found, upgrade.NeedCondition); c == nil || c.Message != upgrade.Message("new") {
		t.Errorf("got condition %v, want the one that was set", c)
	}
}

// lonePod makes a pod that no one owns, on a node or, with "", on none.
func lonePod(t *testing.T, admin kubernetes.Interface, node string, conditions ...corev1.PodCondition) string {
	t.Helper()
	template := podTemplate(nil)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "lone-"}, Spec: template.Spec}
	pod.Spec.NodeName = node
	if node == "" {
		pod.Spec.SchedulerName = "nobody"
	}
	pod, err := admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	setConditions(t, admin, pod, conditions...)
	return pod.Name
}

// replica makes a ReplicaSet with one pod, on a node.
func replica(t *testing.T, admin kubernetes.Interface, node string, conditions ...corev1.PodCondition) string {
	t.Helper()
	labels := map[string]string{"app": "replica"}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "replica"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(labels)},
	}
	set.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	if _, err := admin.AppsV1().ReplicaSets(namespace).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := waitForPods(t, admin, "replica", 1)[node]
	setConditions(t, admin, pod, conditions...)
	return pod.Name
}

func get(t *testing.T, admin kubernetes.Interface, name string) *corev1.Pod {
	t.Helper()
	pod, err := admin.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// version is the pod's resourceVersion, or "" if there is no such pod.
func version(t *testing.T, admin kubernetes.Interface, name string) string {
	t.Helper()
	pod, err := admin.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return pod.ResourceVersion
}

// end takes a pod away at once, as a kubelet does when its containers ended.
func end(t *testing.T, admin kubernetes.Interface, name string) {
	t.Helper()
	now := int64(0)
	if err := admin.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
}
