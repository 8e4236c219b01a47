package imagepull

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// TestRefusals each describe what to do next, and start nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := newBareRig(t, "--container-runtime-endpoint="+t.TempDir()+"/none.sock")
	r.hub.Start()
	fine := r.upgradable("fine", "registry.invalid/app:2")
	r.awaitMark(fine.pod.Name)
	post, get, del := http.MethodPost, http.MethodGet, http.MethodDelete
	// The target of a pod that is as it should be.
	target := upgrade.Target{Revision: "2", Containers: []upgrade.Image{{Name: "c0", Image: "app:2"}}}.Encode()
	tests := map[string]struct {
		method, query string
		pod           func(*rig) string // makes it, and returns its name
		code          int
		says          string
	}{
		"a pod that does not exist":    {post, "", named("nobody"), 404, "there is no pod " + r.namespace + "/nobody"},
		"a pod on another node":        {post, "", lone("", "True", target, true), 403, "not on this node, " + r.node},
		"a pod that is being deleted":  {post, "", deleted, 403, "being deleted already"},
		"a pod no one marked":          {post, "", lone(r.node, "", target, true), 403, "no condition PodNeedUpgrade"},
		"a pod at the newest revision": {post, "", lone(r.node, "False", target, true), 403, "needs no upgrade"},
		"a pod without a target":       {post, "", lone(r.node, "True", "", true), 403, "has no annotation " + upgrade.TargetAnnotation},
		"a target that is none":        {post, "", lone(r.node, "True", "soon", true), 403, "it is not known which images"},
		"a pod without owner":          {post, "", lone(r.node, "True", target, false), 400, "no controlling owner"},
		"a pod of another kind's":      {post, "", lone(r.node, "True", target, true), 400, "belongs to ConfigMap"},
		"nothing to look at":           {get, "", named(fine.pod.Name), 404, "POST to this path starts it"},
		"nothing to follow":            {get, "?watch=true", named(fine.pod.Name), 404, "POST to this path starts it"},
		"nothing to cancel":            {del, "", named(fine.pod.Name), 404, "no images are being pulled"},
		"a watch that is neither":      {get, "?watch=perhaps", named(fine.pod.Name), 400, "neither true nor false"},
		"a method there is not":        {http.MethodPut, "", named(fine.pod.Name), 405, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sub := r.in(t)
			pod := tt.pod(sub)
			sub.expect(sub.call(t.Context(), tt.method, sub.path(pod)+tt.query), tt.code, tt.says)
		})
	}
	if queue := r.list(); len(queue) > 0 {
		t.Errorf("the queue is %+v", queue)
	}
	r.ask(fine.pod.Name)
}

// TestWithoutContainerd is a hub that is configured not to pull.
func TestWithoutContainerd(t *testing.T) {
	t.Parallel()
	r := newBareRig(t, "--container-runtime-endpoint=")
	r.hub.Start()
	d := r.upgradable("web", "registry.invalid/app:2")
	r.awaitMark(d.pod.Name)
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		r.expect(r.call(t.Context(), method, r.path(d.pod.Name)), http.StatusNotImplemented, "--container-runtime-endpoint")
	}
	if queue := r.list(); len(queue) > 0 {
		t.Errorf("the queue is %+v", queue)
	}
	r.expect(r.call(t.Context(), http.MethodGet, nodeapi.Readyz), http.StatusOK, "OK")
}

// in is the same rig for a test within the test.
func (r *rig) in(t *testing.T) *rig {
	sub := *r
	sub.T = t
	return &sub
}

func named(name string) func(*rig) string { return func(*rig) string { return name } }

// lone makes a pod that no DaemonSet has made: on a node, "" for one that is not this
// one, with the condition PodNeedUpgrade and the target unless they are empty, and
// perhaps with an owner: a ConfigMap, which has no controller that would take offence.
func lone(node, need, target string, owned bool) func(*rig) string {
	return func(r *rig) string {
		r.Helper()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "lone-"},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c0", Image: oldImage}}},
		}
		if node == "" {
			other := "other-" + r.node
			if err := env.fleet.AddNode(r.Context(), other, nil); err != nil {
				r.Fatal(err)
			}
			r.Cleanup(func() { _ = env.fleet.RemoveNode(context.WithoutCancel(r.Context()), other) })
			pod.Spec.NodeName = other
		}
		if owned {
			owner, err := env.admin.CoreV1().ConfigMaps(r.namespace).Create(r.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "owner-"}}, metav1.CreateOptions{})
			r.must(err)
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
		}
		if target != "" {
			pod.Annotations = map[string]string{upgrade.TargetAnnotation: target}
		}
		pod, err := env.admin.CoreV1().Pods(r.namespace).Create(r.Context(), pod, metav1.CreateOptions{})
		r.must(err)
		if need != "" {
			c := corev1.PodCondition{Type: upgrade.NeedCondition, Status: corev1.ConditionStatus(need), Message: upgrade.Message("2")}
			r.patchPod(pod, map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{c}}})
		}
		return pod.Name
	}
}

// deleted makes a pod that goes on until its kubelet has ended it, which there is none of.
func deleted(r *rig) string {
	r.Helper()
	name := lone(r.node, "True", "", false)(r)
	r.must(env.admin.CoreV1().Pods(r.namespace).Delete(r.Context(), name, metav1.DeleteOptions{}))
	return name
}
