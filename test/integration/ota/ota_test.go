package ota

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/api/podstatus"
)

// bareDaemonPods makes a DaemonSet on the bare nodes, whose pods need an upgrade, and returns its pods by node.
func bareDaemonPods(t *testing.T, name string) map[string]*corev1.Pod {
	t.Helper()
	createDaemonSet(t, name, map[string]string{bare: ""}, func(ds *appsv1.DaemonSet) { ds.Spec.Template.Labels[bare] = "" })
	pods := podsOf(t, name)
	for _, pod := range pods {
		patchStatus(t, pod.Name, `{"conditions":[{"type":"PodNeedUpgrade","status":"True","message":"`+api.Message("new")+`"}]}`)
	}
	return pods
}

func podsOf(t *testing.T, daemonSet string) map[string]*corev1.Pod {
	t.Helper()
	onNode := func(pod *corev1.Pod) string { return pod.Spec.NodeName }
	return podsBy(t, metav1.ListOptions{LabelSelector: "app=" + daemonSet}, onNode, len(bareNodes))
}

// loneBarePod makes a pod that no one owns, on a node or, with "", on none.
func loneBarePod(t *testing.T, node string) string {
	t.Helper()
	pod, err := env.admin.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lone-", Labels: map[string]string{bare: ""}},
		Spec:       corev1.PodSpec{NodeName: node, SchedulerName: "nobody", Containers: []corev1.Container{{Name: "app", Image: "app.invalid/app:v1"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	return pod.Name
}

func TestAnUpgradeDeletesThePodOnce(t *testing.T) {
	t.Parallel()
	node1 := startAPI(t, "node1")
	pods := bareDaemonPods(t, "once")
	old := pods["node1"]

	expect(t, node1.upgrade(t.Context(), namespace, old.Name), http.StatusOK, "Start updating pod default/"+old.Name)
	if pod := get(t, old.Name); pod.DeletionTimestamp == nil || pod.UID != old.UID || *pod.DeletionGracePeriodSeconds != *old.Spec.TerminationGracePeriodSeconds {
		t.Errorf("the pod is not being deleted in its own time: %+v", pod.ObjectMeta)
	}
	expect(t, node1.upgrade(t.Context(), namespace, old.Name), http.StatusForbidden, "being deleted already")
	if n := node1.deletions.Load(); n != 1 {
		t.Errorf("%d deletions took effect, want one", n)
	}

	end(t, old.Name) // what its kubelet would do
	successor := podsOf(t, "once")["node1"]
	if successor.UID == old.UID {
		t.Fatalf("the DaemonSet made no new pod in place of %s", old.Name)
	}
	expect(t, node1.upgrade(t.Context(), namespace, old.Name), http.StatusNotFound, "there is no pod default/"+old.Name)
	expect(t, node1.upgrade(t.Context(), namespace, successor.Name), http.StatusForbidden, "no condition PodNeedUpgrade")
	if pod := get(t, pods["node2"].Name); pod.DeletionTimestamp != nil {
		t.Error("the pod on the other node is being deleted too")
	}
}

// Whoever may call learns nothing of the pods of other nodes.
func TestUpgradesOfPodsThatTheNodeHasNot(t *testing.T) {
	t.Parallel()
	node1 := startAPI(t, "node1")
	elsewhere, unscheduled := bareDaemonPods(t, "elsewhere")["node2"], loneBarePod(t, "")
	for name, tt := range map[string]struct {
		namespace, pod string
		code           int
		says           string
	}{
		"no such pod":            {namespace, "nobody", 404, "there is no pod default/nobody"},
		"no such namespace":      {"nowhere", "nobody", 404, "there is no pod nowhere/nobody"},
		"a pod on another node":  {namespace, elsewhere.Name, 404, "there is no pod default/" + elsewhere.Name},
		"a pod that has no node": {namespace, unscheduled, 404, "there is no pod default/" + unscheduled},
	} {
		t.Run(name, func(t *testing.T) {
			before := get(t, tt.pod)
			expect(t, node1.upgrade(t.Context(), tt.namespace, tt.pod), tt.code, tt.says)
			if after := get(t, tt.pod); before != nil && after.ResourceVersion != before.ResourceVersion {
				t.Errorf("the refused request changed the pod: %+v", after.ObjectMeta)
			}
		})
	}
	if n := node1.deletions.Load(); n != 0 {
		t.Errorf("%d deletions were accepted, want none", n)
	}
}

// Package podstatus says what kubectl does of pods. The test plays their kubelet.
func TestPodsHaveTheStatusThatKubectlShows(t *testing.T) {
	t.Parallel()
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	for name, tt := range map[string]struct {
		phase    corev1.PodPhase
		restarts int32
		state    corev1.ContainerState
	}{
		"it runs":                  {corev1.PodRunning, 0, runs},
		"it was restarted":         {corev1.PodRunning, 2, runs},
		"its image is not there":   {corev1.PodPending, 0, waiting("ErrImagePull")},
		"it crashes":               {corev1.PodRunning, 4, waiting("CrashLoopBackOff")},
		"it is being created":      {corev1.PodPending, 0, waiting("ContainerCreating")},
		"its container has exited": {corev1.PodRunning, 1, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := loneBarePod(t, "node1")
			ready := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[tt.state.Running != nil]
			status, err := json.Marshal(map[string]any{
				"phase":             tt.phase,
				"conditions":        []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}},
				"containerStatuses": []corev1.ContainerStatus{{Name: "app", Image: "app", Ready: tt.state.Running != nil, RestartCount: tt.restarts, State: tt.state}},
			})
			must(t, err)
			patchStatus(t, pod, string(status))
			row, err := env.Kubectl(t.Context(), "get", "pod", pod, "--no-headers")
			must(t, err)
			got := podstatus.Of(get(t, pod))
			want := strings.Fields(row) // name, ready, status, restarts
			if shown := fmt.Sprintf("%d/%d %s %d", got.Ready, got.Containers, got.Status, got.Restarts); shown != strings.Join(want[1:4], " ") {
				t.Errorf("got %s, kubectl shows %q", shown, row)
			}
		})
	}
}
