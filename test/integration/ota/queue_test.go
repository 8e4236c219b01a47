package ota

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// edge is a node behind a hub process, with a link to the cloud that can be cut.
type edge struct {
	*testing.T
	hub  *hubproc.Hub
	node *nodeAPI // of the hub
}

func startEdge(t *testing.T) *edge {
	t.Helper()
	hub := hubproc.New(t, hubproc.Options{Binary: env.hubBin, Server: env.ServerURL(), Args: []string{"--container-runtime-endpoint="}})
	hub.IdentifyAs(env.Cluster, "system:nodes")
	must(t, env.fleet.AddNode(t.Context(), hub.Name, map[string]string{corev1.LabelHostname: hub.Name}))
	t.Cleanup(func() {
		if err := env.fleet.RemoveNode(context.Background(), hub.Name); err != nil {
			t.Error(err)
		}
	})
	hub.Start()
	return &edge{T: t, hub: hub, node: &nodeAPI{url: hub.API}}
}

// create makes a DaemonSet on the node that its owner upgrades.
func (e *edge) create(name string, change ...func(*appsv1.DaemonSet)) {
	e.Helper()
	createDaemonSet(e.T, name, map[string]string{corev1.LabelHostname: e.hub.Name}, append(change, otaStrategy)...)
}

// pods returns the node's pods by their DaemonSets, once n of them are there and none is being deleted.
func (e *edge) pods(n int) map[string]*corev1.Pod {
	e.Helper()
	return podsBy(e.T, metav1.ListOptions{FieldSelector: "spec.nodeName=" + e.hub.Name}, func(pod *corev1.Pod) string { return pod.Labels["app"] }, n)
}

// cut takes the cloud away, and returns once the hub knows.
func (e *edge) cut() {
	e.Helper()
	must(e.T, e.hub.Link.Refuse())
	e.hub.Link.Reset()
	poll.Eventually(e.T, "the hub is offline", func() bool {
		got := e.node.call(e.Context(), http.MethodGet, api.Readyz)
		return got.code == http.StatusOK && got.body != "OK"
	})
}

func (e *edge) upgrade(pod *corev1.Pod) answer {
	return e.node.upgrade(e.Context(), namespace, pod.Name)
}

// TestUpgradesAreQueuedWithoutTheCloud queues upgrades, some of which do not apply any more when the cloud is back,
// and one for a time that has not come. The hub is killed while they are queued, and while they are carried out.
// test/chaos/upgrade kills more, at random.
func TestUpgradesAreQueuedWithoutTheCloud(t *testing.T) {
	t.Parallel()
	e := startEdge(t)
	want := map[string]api.UpgradeState{
		"one": api.Done, "two": api.Done, "three": api.Done, "four": api.Done,
		"moved": api.Dropped, "undone": api.Dropped, "adopted": api.Dropped, "later": api.Scheduled,
	}
	for name := range want {
		e.create(name)
	}
	before := e.pods(len(want))
	for name := range want {
		setImage(t, name, "app.invalid/app:v2")
	}
	e.awaitMarks(len(want))
	poll.Eventually(t, "the hub has on disk what it knows", func() bool { // it is killed below
		pending, found, err := metric.Sum(e.node.call(t.Context(), http.MethodGet, api.Metrics).body, "edgehub_cache_pending_bytes")
		return err == nil && found && pending == 0
	})
	mark, err := env.audit.Mark()
	must(t, err)

	e.cut()
	at := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	for i, name := range slices.Sorted(maps.Keys(want)) {
		if i == len(want)/2 {
			e.hub.Kill()
			e.hub.Start()
		}
		pod := before[name].Name
		if name == "later" {
			expect(t, e.node.call(t.Context(), http.MethodPost, api.UpgradePath(namespace, pod)+"?at="+at), http.StatusAccepted, "scheduled for "+at)
			continue
		}
		expect(t, e.upgrade(before[name]), http.StatusAccepted, "Upgrade of pod default/"+pod+" queued: it starts when the cloud can be reached")
	}
	if got := e.states(before); got[api.WaitingForCloud] != len(want)-1 {
		t.Errorf("before the cloud is back: %v", got)
	}

	e.changeTheCloud(before)
	must(t, e.hub.Link.Up())
	poll.Eventually(t, "some upgrades are carried out", func() bool { return e.states(before)[api.Done] > 0 })
	e.hub.Kill()
	e.hub.Start()
	poll.Eventually(t, "all upgrades have ended", func() bool {
		got := e.states(before)
		return got[api.Done]+got[api.Dropped] == len(want)-1
	})
	e.expectUpgrades(before, want)
	e.expectOnce(mark, before, want)

	later := before["later"].Name
	e.awaitWaiting(later, true)
	expect(t, e.node.call(t.Context(), http.MethodDelete, api.UpgradePath(namespace, later)), http.StatusOK, "Upgrade cancelled for pod default/"+later)
	e.awaitWaiting(later, false)
}

// changeTheCloud has some upgrades not apply any more, while the node is without the cloud.
func (e *edge) changeTheCloud(before map[string]*corev1.Pod) {
	e.Helper()
	queued := e.upgrades(before)
	setImage(e.T, "moved", "app.invalid/app:v3")
	setImage(e.T, "undone", "app.invalid/app:v1")
	sets, orphan := env.admin.AppsV1().DaemonSets(namespace), metav1.DeletePropagationOrphan
	must(e.T, sets.Delete(e.Context(), "adopted", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	poll.Eventually(e.T, "the DaemonSet is gone", func() bool {
		_, err := sets.Get(e.Context(), "adopted", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	e.create("adopted", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "app.invalid/app:v3" })
	poll.Eventually(e.T, "the controllers have seen what has changed", func() bool {
		for _, name := range []string{"moved", "adopted"} {
			if need := e.need(before[name]); need.Status != corev1.ConditionTrue || api.RevisionOf(need) == queued[name].Revision {
				return false
			}
		}
		return e.need(before["undone"]).Status == corev1.ConditionFalse
	})
}

// need returns what the controller has written on a pod in the cloud.
func (e *edge) need(pod *corev1.Pod) *corev1.PodCondition {
	e.Helper()
	if c := api.Condition(get(e.T, pod.Name), api.NeedCondition); c != nil {
		return c
	}
	return &corev1.PodCondition{}
}

// awaitMarks returns once the hub shows that n pods need an upgrade.
func (e *edge) awaitMarks(n int) {
	e.Helper()
	poll.Eventually(e.T, "the hub knows that all pods need an upgrade", func() bool {
		got := e.node.call(e.Context(), http.MethodGet, api.Pods)
		var list corev1.PodList
		if got.err != nil || json.Unmarshal([]byte(got.body), &list) != nil {
			return false
		}
		marked := 0
		for i := range list.Items {
			if need := api.Condition(&list.Items[i], api.NeedCondition); need != nil && need.Status == corev1.ConditionTrue {
				marked++
			}
		}
		return marked == n
	})
}

// upgrades returns what has become of the upgrades, by the DaemonSets of the pods.
func (e *edge) upgrades(pods map[string]*corev1.Pod) map[string]api.Upgrade {
	e.Helper()
	got := e.node.call(e.Context(), http.MethodGet, api.Upgrades)
	expect(e.T, got, http.StatusOK, "")
	var list api.UpgradeList
	must(e.T, json.Unmarshal([]byte(got.body), &list))
	byApp := map[string]api.Upgrade{}
	for _, u := range list.Items {
		for name, pod := range pods {
			if string(pod.UID) == u.UID {
				byApp[name] = u
			}
		}
	}
	return byApp
}

// states counts the upgrades.
func (e *edge) states(pods map[string]*corev1.Pod) map[api.UpgradeState]int {
	e.Helper()
	count := map[api.UpgradeState]int{}
	for _, u := range e.upgrades(pods) {
		count[u.State]++
	}
	return count
}

// expectUpgrades checks what has become of each upgrade, and that an Event says why one was dropped.
func (e *edge) expectUpgrades(before map[string]*corev1.Pod, want map[string]api.UpgradeState) {
	e.Helper()
	upgrades := e.upgrades(before)
	for name, state := range want {
		u, pod := upgrades[name], before[name]
		if u.State != state || (u.State == api.Dropped) != (u.Message != "") {
			e.Errorf("%s: %+v, want %s", name, u, state)
		}
		if u.State != api.Dropped {
			continue
		}
		poll.Eventually(e.T, "an Event of pod "+pod.Name+" says "+u.Message, func() bool {
			list, err := env.admin.CoreV1().Events(namespace).List(e.Context(), metav1.ListOptions{
				FieldSelector: "involvedObject.uid=" + string(pod.UID) + ",reason=UpgradeDropped",
			})
			must(e.T, err)
			return slices.ContainsFunc(list.Items, func(event corev1.Event) bool { return strings.Contains(event.Message, u.Message) })
		})
	}
}

// expectOnce fails the test unless the node has deleted once, since mark, each pod whose upgrade is done, and no other.
func (e *edge) expectOnce(mark int64, pods map[string]*corev1.Pod, upgrades map[string]api.UpgradeState) {
	e.Helper()
	requests, err := env.audit.Since(mark)
	must(e.T, err)
	got, want := map[string]int{}, map[string]int{}
	for _, r := range requests {
		if r.User.Username == e.hub.User && r.ResponseStatus.Code == http.StatusOK {
			got[r.ObjectRef.Name]++
		}
	}
	for name, state := range upgrades {
		if state == api.Done {
			want[pods[name].Name] = 1
		}
	}
	if !maps.Equal(got, want) {
		e.Errorf("the node has deleted %v, want %v", got, want)
	}
	for name, pod := range e.pods(len(pods)) {
		if replaced := pod.UID != pods[name].UID; replaced != (upgrades[name] == api.Done) {
			e.Errorf("the pod of %s, whose upgrade is %s, was replaced: %v", name, upgrades[name], replaced)
		}
	}
}

// awaitWaiting returns once the cloud has, or has not, an annotation that an upgrade of a pod waits.
func (e *edge) awaitWaiting(pod string, want bool) {
	e.Helper()
	poll.Eventually(e.T, fmt.Sprintf("the cloud is shown that an upgrade of pod %s waits: %v", pod, want), func() bool {
		_, waits, err := api.WaitingOf(get(e.T, pod))
		must(e.T, err)
		return waits == want
	})
}

// Kubernetes lets a pod run on where it would start no other.
func TestAnUpgradeThatWouldLoseTheAppIsRefused(t *testing.T) {
	t.Parallel()
	e := startEdge(t)
	e.create("lost")
	pod := e.pods(1)["lost"]
	kubectl := func(args ...string) {
		t.Helper()
		_, err := env.Kubectl(t.Context(), args...)
		must(t, err)
	}
	const taint = "dedicated=line3:NoSchedule"
	kubectl("taint", "node", e.hub.Name, taint)
	setImage(t, "lost", "app.invalid/app:v2")
	poll.Eventually(t, "the pod says what is in the way", func() bool {
		target, _, err := api.TargetOf(get(t, pod.Name))
		must(t, err)
		return strings.Contains(target.Blocked, "the taint "+taint)
	})
	expect(t, e.upgrade(pod), http.StatusForbidden, "would not come back: node "+e.hub.Name+" has the taint "+taint)
	kubectl("taint", "node", e.hub.Name, "dedicated-")
	poll.Eventually(t, "the upgrade goes when nothing is in the way", func() bool { return e.upgrade(pod).code == http.StatusOK })
	poll.Eventually(t, "there is another pod", func() bool { return e.pods(1)["lost"].UID != pod.UID })
}
