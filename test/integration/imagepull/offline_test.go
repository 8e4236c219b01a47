package imagepull

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestOffline needs the cloud for nothing: the pod, its target and the passwords of a
// private registry come from the hub's cache. Invariants 1, 2 and 6.
func TestOffline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	layer := r.layer(1, 16<<20)
	reference, _ := r.push("private", "2", layer)
	r.registry.Require("private", user, password)
	r.pullSecret("old", "the wrong "+password)
	r.pullSecret("new", password)
	r.hub.Start()
	d := r.daemonSet("web", "old", "new")
	d.change(reference)
	d.mark(false)
	pod := d.pod.Name
	r.awaitMark(pod)
	r.readAsKubelet("old", "new")
	r.eventually("nothing waits for the disk", func() bool { return r.metric("edgehub_cache_pending_bytes") == 0 })
	r.registry.SetRate(4 << 20)

	r.must(r.hub.Link.BlackHole()) // the hub finds out when it is asked
	r.ask(pod)
	r.awaitBytes(layer, 4<<20)
	r.hub.Kill()
	r.registry.SetRate(0)
	r.hub.Start()
	got := r.awaitReady(pod)
	if i := got.Images[0]; i.Image != reference || got.Revision != d.revision {
		t.Errorf("after a restart offline: %+v", got)
	}
	r.atMost(1.05, layer)
	r.awaitImage(reference)
	if r.online() {
		t.Error("the cloud was not away all the time")
	}
	if got := d.condition(); got != "nothing" {
		t.Errorf("while the cloud was away, the pod came to say %s there", got)
	}
	r.must(r.hub.Link.Up())
	d.awaitCondition(d.ready())
	d.expectNoSecretTold()
}

// readAsKubelet has the hub hand on secrets as kubelet reads them: each by a list and
// a watch of its own.
func (r *rig) readAsKubelet(names ...string) {
	r.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: r.hub.Plain, UserAgent: "kubelet/v1.37.2 (linux/amd64)", ContentConfig: rest.ContentConfig{
		AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
	}})
	r.must(err)
	secrets := client.CoreV1().Secrets(r.namespace)
	for _, name := range names {
		only := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
		var version string
		r.eventually("kubelet may read secret "+name, func() bool { // once the apiserver knows that a pod here has it
			list, err := secrets.List(r.Context(), only)
			if err != nil || len(list.Items) != 1 {
				return false
			}
			version = list.ResourceVersion
			return true
		})
		only.ResourceVersion = version
		w, err := secrets.Watch(r.Context(), only)
		r.must(err)
		r.Cleanup(w.Stop)
		go func() {
			for e := range w.ResultChan() {
				if e.Type == watch.Error {
					return
				}
			}
		}()
	}
}
