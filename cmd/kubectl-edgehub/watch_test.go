package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// rolling returns a DaemonSet web with AdvancedRollingUpdate, its only pod, which is of an earlier revision, and the rest
// that there is to it.
func rolling() (*appsv1.DaemonSet, *corev1.Pod, []runtime.Object) {
	ds := managed("web", "AdvancedRollingUpdate")
	ds.Namespace, ds.UID, ds.Spec.Selector = "shop", "web-uid", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge01"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	meta := func(name, hash string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: hash},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "web", UID: "web-uid", Controller: new(true)}},
		}
	}
	pod := &corev1.Pod{ObjectMeta: meta("web-x", "old")}
	pod.Spec.NodeName = "edge01"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return &ds, pod, []runtime.Object{
		node, &appsv1.ControllerRevision{ObjectMeta: meta("web-old", "old"), Revision: 1}, &appsv1.ControllerRevision{ObjectMeta: meta("web-new", "new"), Revision: 2},
	}
}

func TestHowAWatchEnds(t *testing.T) {
	const none = time.Duration(0)
	annotated := func(key, value string) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) { ds.Annotations[key] = value }
	}
	tests := map[string]struct {
		change    func(*appsv1.DaemonSet)
		timeout   time.Duration
		meanwhile func(stop func(), client *fake.Clientset, pod *corev1.Pod) error
		code      progress.ExitCode
		out, err  string // the beginning of the last line, and words
	}{
		"with its rollout": {nil, none, func(_ func(), client *fake.Clientset, pod *corev1.Pod) error {
			pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "new"
			return client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "shop")
		}, progress.ExitDone, "complete: 1 of 1 nodes updated", ""},
		"with its timeout": {nil, 3 * time.Second, nil, progress.ExitUnderWay, "updating: 0 of 1 nodes updated", "timed out after 3s: 0 of 1 nodes updated"},
		"with its timeout, during a pause": {annotated(rollout.PausedAnnotation, "true"), 3 * time.Second, nil,
			progress.ExitHeldUp, "paused: ", "timed out after 3s"},
		"with its person": {nil, none, func(stop func(), _ *fake.Clientset, _ *corev1.Pod) error {
			stop()
			return nil
		}, progress.ExitUnderWay, "updating: ", ""},
		"with its DaemonSet": {nil, none, func(_ func(), client *fake.Clientset, _ *corev1.Pod) error {
			return client.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("daemonsets"), "shop", "web")
		}, progress.ExitFailed, "updating: ", "daemonset shop/web has been deleted"},
		"when only nodes that are not Ready are left": {nil, none, func(_ func(), client *fake.Clientset, _ *corev1.Pod) error {
			return client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge01"}}, "")
		}, progress.ExitDone, "waiting: 0 of 1 nodes updated", ""},
		"at once, if the annotations are wrong": {annotated(rollout.MaxUnavailableAnnotation, "abc"), none, nil, progress.ExitHeldUp, "invalid: ", ""},
		"at once, without a strategy":           {func(ds *appsv1.DaemonSet) { ds.Annotations = nil }, none, nil, progress.ExitFailed, "", "has not opted into an update strategy"},
	}
	for name, tt := range tests {
		for _, output := range []string{"", "json"} {
			t.Run(name+output, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ds, pod, others := rolling()
					if tt.change != nil {
						tt.change(ds)
					}
					client := fake.NewClientset(append(others, ds, pod)...)
					ctx, stop := context.WithTimeout(t.Context(), time.Hour) // or else a watch that does not end would hang
					defer stop()
					if tt.meanwhile != nil {
						time.AfterFunc(5*time.Second, func() {
							if err := tt.meanwhile(stop, client, pod.DeepCopy()); err != nil {
								t.Error(err)
							}
						})
					}
					var out bytes.Buffer
					c := &cluster{client: client, namespace: "shop", clock: &serverClock{}}
					code, err := statusOf(ctx, c, named{workload.DaemonSet, "web"}, &options{watch: true, ready: true, timeout: tt.timeout, output: output}, streams{&out, &out})
					if code != tt.code || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
						t.Errorf("got exit code %d and %v; want %d and %q", code, err, tt.code, tt.err)
					}
					lines := strings.Split(strings.TrimSpace(out.String()), "\n")
					last := lines[len(lines)-1]
					if output == "" {
						if !strings.HasPrefix(last, tt.out) {
							t.Errorf("the last line is %q, want %q", last, tt.out)
						}
						return
					}
					for _, line := range lines {
						if line != "" && !json.Valid([]byte(line)) {
							t.Errorf("no JSON: %q", line)
						}
					}
					if state, _, _ := strings.Cut(tt.out, ":"); state != "" && !strings.Contains(last, `"state":"`+state+`"`) {
						t.Errorf("the last line is %q, want the state %s", last, state)
					}
				})
			})
		}
	}
}
