package ota

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// away is a node behind a hub process, with DaemonSets that the real controllers manage, and a link to
// the cloud that can be cut.
type away struct {
	*testing.T
	cluster *cluster.Cluster
	admin   kubernetes.Interface
	hub     *hubproc.Hub
	node    *api // of the hub
	audit   *audit.Log
}

// TestUpgradesAreQueuedWithoutTheCloud queues a hundred upgrades, some that do not apply any more when the
// cloud is back, and one for a time that has not come. The hub is killed while they are queued, and while
// they are carried out.
func TestUpgradesAreQueuedWithoutTheCloud(t *testing.T) {
	t.Parallel()
	a := startAway(t)
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("many-%d", i))
	}
	conflicts := []string{"moved", "undone", "replaced", "deleted", "recreated"}
	all := append(slices.Clone(many), conflicts...)
	for _, name := range append(slices.Clone(all), "later") {
		a.create(name, "app.invalid/app:v1")
	}
	before := a.pods(len(all) + 1)
	for name := range before {
		a.setImage(name, "app.invalid/app:v2")
	}
	a.awaitMarks(len(before))
	poll.Eventually(t, "the hub has on disk what it knows", func() bool { // it is killed below
		pending, found, err := metric.Sum(a.node.call(t.Context(), http.MethodGet, nodeapi.Metrics).body, "edgehub_cache_pending_bytes")
		return err == nil && found && pending == 0
	})
	mark, err := a.audit.Mark()
	a.must(err)

	a.must(a.hub.Link.Refuse())
	a.hub.Link.Reset()
	a.awaitOffline()
	for i, name := range all {
		if i == len(all)/2 {
			a.hub.Kill()
			a.hub.Start()
		}
		pod := before[name].Name
		if got := a.node.upgrade(t.Context(), pod); got.code != http.StatusAccepted || got.body != "Upgrade of pod default/"+pod+" queued: it starts when the cloud can be reached\n" {
			t.Fatalf("got %s", got)
		}
	}
	for _, u := range a.upgrades() {
		if u.State != nodeapi.WaitingForCloud {
			t.Errorf("before the cloud is back: %+v", u)
		}
	}
	later := before["later"].Name
	at := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	expect(t, a.node.call(t.Context(), http.MethodPost, nodeapi.UpgradePath(namespace, later)+"?at="+at), http.StatusAccepted, "scheduled for "+at)

	a.change(before)
	a.must(a.hub.Link.Up())
	poll.Eventually(t, "some upgrades are carried out", func() bool { return a.count(nodeapi.Done) > 10 })
	a.hub.Kill()
	a.hub.Start()
	poll.Eventually(t, "all upgrades have ended", func() bool { return a.count(nodeapi.Done)+a.count(nodeapi.Dropped) == len(all) })

	for _, u := range a.upgrades() {
		name := appOf(before, u.UID)
		want := nodeapi.Done
		switch {
		case name == "later":
			want = nodeapi.Scheduled
		case slices.Contains(conflicts, name):
			want = nodeapi.Dropped
		}
		if u.State != want || (u.State == nodeapi.Dropped) != (u.Message != "") {
			t.Errorf("%s: %+v, want %s", name, u, want)
		}
		if u.State == nodeapi.Dropped {
			a.awaitEvent(before[name], u.Message)
		}
	}
	a.expectOnce(mark, before, many)
	after := a.pods(len(before) - 1)
	for _, name := range []string{"moved", "undone", "recreated", "later"} {
		if after[name].UID != before[name].UID {
			t.Errorf("the pod of %s was replaced", name)
		}
	}

	a.awaitWaiting(later, true)
	expect(t, a.node.call(t.Context(), http.MethodDelete, nodeapi.UpgradePath(namespace, later)), http.StatusOK, "Upgrade cancelled for pod default/"+later)
	a.awaitWaiting(later, false)
}

// change has some upgrades not apply any more, while the node is without the cloud.
func (a *away) change(before map[string]*corev1.Pod) {
	a.Helper()
	a.setImage("moved", "app.invalid/app:v3")
	a.setImage("undone", "app.invalid/app:v1")
	end(a.T, a.admin, before["replaced"].Name)
	a.remove("deleted", metav1.DeletePropagationBackground)
	a.remove("recreated", metav1.DeletePropagationOrphan)
	a.create("recreated", "app.invalid/app:v3")
	poll.Eventually(a.T, "the controllers have seen what has changed", func() bool {
		moved, recreated := a.need(before["moved"]), a.need(before["recreated"])
		return moved.Message != upgrade.Message(a.target(before["moved"])) && recreated.Message != upgrade.Message(a.target(before["recreated"])) &&
			a.need(before["undone"]).Status == corev1.ConditionFalse && !a.exists(before["deleted"])
	})
}

func startAway(t *testing.T) *away {
	t.Helper()
	const rules = `- level: Metadata
  verbs: [delete]
  resources: [{resources: [pods]}]
- level: None
`
	log, err := audit.NewAnswered(filepath.Join(t.TempDir(), "audit"), rules)
	if err != nil {
		t.Fatal(err)
	}
	c, admin := startControlPlane(t, log.Args()...)
	binary, err := hubproc.Build(t.Context(), "../../..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	hub := hubproc.New(t, hubproc.Options{Binary: binary, Server: c.ServerURL(), Args: []string{"--container-runtime-endpoint="}})
	hub.IdentifyAs(c, "system:nodes")
	a := &away{T: t, cluster: c, admin: admin, hub: hub, node: &api{url: hub.API}, audit: log}

	nodes := fleet.New(admin, fleet.Options{Log: t.Output()})
	a.run("the fleet", nodes.Run)
	a.must(nodes.AddNode(t.Context(), hub.Name, map[string]string{corev1.LabelHostname: hub.Name}))
	marks, err := controller.New(admin, controller.Options{Logger: slog.New(slog.DiscardHandler)})
	a.must(err)
	a.run("the controller", marks.Run)
	hub.Start()
	return a
}

// run runs something until the test ends.
func (a *away) run(what string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1) // one result
	go func() { ended <- run(ctx) }()
	a.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			a.Errorf("%s: %v", what, err)
		}
	})
}

func (a *away) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func (a *away) create(name, image string) {
	a.Helper()
	labels := map[string]string{"app": name}
	template := podTemplate(labels)
	template.Spec.Containers[0].Image = image
	template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: a.hub.Name}
	_, err := a.admin.AppsV1().DaemonSets(namespace).Create(a.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"apps.openyurt.io/update-strategy": "OTA"}},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
		},
	}, metav1.CreateOptions{})
	a.must(err)
}

// remove removes a DaemonSet, and returns once it is gone.
func (a *away) remove(name string, propagation metav1.DeletionPropagation) {
	a.Helper()
	sets := a.admin.AppsV1().DaemonSets(namespace)
	a.must(sets.Delete(a.Context(), name, metav1.DeleteOptions{PropagationPolicy: &propagation}))
	poll.Eventually(a.T, "DaemonSet "+name+" is gone", func() bool {
		_, err := sets.Get(a.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func (a *away) setImage(name, image string) {
	a.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":%q}]}}}}`, image)
	_, err := a.admin.AppsV1().DaemonSets(namespace).Patch(a.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	a.must(err)
}

// pods returns the pods by their DaemonSets, once n are there and none is being deleted.
func (a *away) pods(n int) map[string]*corev1.Pod {
	a.Helper()
	byApp := map[string]*corev1.Pod{}
	poll.Eventually(a.T, fmt.Sprintf("%d pods are on the node", n), func() bool {
		clear(byApp)
		list, err := a.admin.CoreV1().Pods(namespace).List(a.Context(), metav1.ListOptions{})
		a.must(err)
		for i, pod := range list.Items {
			if pod.Spec.NodeName == a.hub.Name && pod.DeletionTimestamp == nil {
				byApp[pod.Labels["app"]] = &list.Items[i]
			}
		}
		return len(byApp) == n
	})
	return byApp
}

func appOf(pods map[string]*corev1.Pod, uid string) string {
	for name, pod := range pods {
		if string(pod.UID) == uid {
			return name
		}
	}
	return ""
}

// awaitMarks returns once the hub shows that n pods need an upgrade.
func (a *away) awaitMarks(n int) {
	a.Helper()
	poll.Eventually(a.T, "the hub knows that all pods need an upgrade", func() bool {
		got := a.node.call(a.Context(), http.MethodGet, nodeapi.Pods)
		var list corev1.PodList
		if got.err != nil || json.Unmarshal([]byte(got.body), &list) != nil {
			return false
		}
		marked := 0
		for i := range list.Items {
			if need := upgrade.Condition(&list.Items[i], upgrade.NeedCondition); need != nil && need.Status == corev1.ConditionTrue {
				marked++
			}
		}
		return marked == n
	})
}

// need returns what the controller has written on a pod in the cloud.
func (a *away) need(pod *corev1.Pod) corev1.PodCondition {
	a.Helper()
	if c := upgrade.Condition(get(a.T, a.admin, pod.Name), upgrade.NeedCondition); c != nil {
		return *c
	}
	return corev1.PodCondition{}
}

func (a *away) exists(pod *corev1.Pod) bool { return version(a.T, a.admin, pod.Name) != "" }

// awaitWaiting returns once the cloud has, or has not, an annotation that an upgrade of a pod waits.
func (a *away) awaitWaiting(pod string, want bool) {
	a.Helper()
	poll.Eventually(a.T, fmt.Sprintf("the cloud is shown that an upgrade of pod %s waits: %v", pod, want), func() bool {
		_, waits, err := upgrade.WaitingOf(get(a.T, a.admin, pod))
		a.must(err)
		return waits == want
	})
}

// target returns the revision to which the upgrade of a pod was queued.
func (a *away) target(pod *corev1.Pod) string {
	a.Helper()
	for _, u := range a.upgrades() {
		if u.UID == string(pod.UID) {
			return u.Revision
		}
	}
	a.Fatalf("no upgrade of pod %s is queued", pod.Name)
	return ""
}

func (a *away) upgrades() []nodeapi.Upgrade {
	a.Helper()
	got := a.node.call(a.Context(), http.MethodGet, nodeapi.Upgrades)
	expect(a.T, got, http.StatusOK, "")
	var list nodeapi.UpgradeList
	a.must(json.Unmarshal([]byte(got.body), &list))
	return list.Items
}

func (a *away) count(state nodeapi.UpgradeState) int {
	a.Helper()
	n := 0
	for _, u := range a.upgrades() {
		if u.State == state {
			n++
		}
	}
	return n
}

func (a *away) awaitOffline() {
	a.Helper()
	poll.Eventually(a.T, "the hub is offline", func() bool {
		got := a.node.call(a.Context(), http.MethodGet, nodeapi.Readyz)
		return got.code == http.StatusOK && got.body != "OK"
	})
}

func (a *away) awaitEvent(pod *corev1.Pod, words string) {
	a.Helper()
	poll.Eventually(a.T, "an Event of pod "+pod.Name+" says "+words, func() bool {
		list, err := a.admin.CoreV1().Events(namespace).List(a.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.uid=" + string(pod.UID) + ",reason=UpgradeDropped",
		})
		a.must(err)
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, words) })
	})
}

// expectOnce fails the test unless the node has deleted each of these apps' pods once since mark, and no
// other.
func (a *away) expectOnce(mark int64, pods map[string]*corev1.Pod, apps []string) {
	a.Helper()
	requests, err := a.audit.Since(mark)
	a.must(err)
	got, want := map[string]int{}, map[string]int{}
	for _, r := range requests {
		if r.User.Username == a.hub.User && r.ResponseStatus.Code == http.StatusOK {
			got[r.ObjectRef.Name]++
		}
	}
	for _, name := range apps {
		want[pods[name].Name] = 1
	}
	if !maps.Equal(got, want) {
		a.Errorf("the node has deleted %v, want %v", got, want)
	}
}
