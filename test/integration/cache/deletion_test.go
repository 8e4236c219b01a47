package cache

import (
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// deletes is the node's DELETE, with options.
func (h *hub) deletes(t *testing.T, path, options string) answer {
	t.Helper()
	a := h.node.send(t, http.MethodDelete, path, asJSON, asJSON, []byte(options))
	if a.status != http.StatusOK && a.status != http.StatusAccepted {
		t.Fatal(a)
	}
	return a
}

// podPath makes a pod of the hub's node.
func (s *space) podPath(node, name string) string {
	s.t.Helper()
	return "/api/v1/namespaces/" + s.name + "/pods/" + s.pod(node, name).Name
}

// an object that is only being deleted is still there, as the answer to the DELETE shows it,
// until its last finalizer is removed.
func TestWhatIsBeingDeletedIsServed(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 2)
	for _, name := range []string{"c-000", "c-001"} {
		patch := []byte(`{"metadata":{"finalizers":["edgehub.io/test"]}}`)
		if _, err := s.maps.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	h.node.servedList(t, s.path, protobuf)
	h.deletes(t, s.one("c-000"), "")
	h.deletes(t, s.one("c-001"), "")
	if a := h.node.send(t, http.MethodPatch, s.one("c-001"), asJSON, merge, []byte(`{"metadata":{"finalizers":null}}`)); a.status != http.StatusOK {
		t.Fatal(a)
	}
	h.afterwards(t, func(t *testing.T) {
		if got := decodeAs[*corev1.ConfigMap](t, h.node.get(t, s.one("c-000"), protobuf)); got.DeletionTimestamp == nil {
			t.Error("the object is not being deleted")
		}
		h.readsAs(s.one("c-001"), http.StatusNotFound)(t)
	})
}

// a pod has time to end, and is gone when that is over.
func TestADeletionWithAGracePeriod(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	h.makeNode()
	ending, ended, killed := s.podPath(h.name, "ending"), s.podPath(h.name, "ended"), s.podPath(h.name, "killed")
	list := "/api/v1/namespaces/" + s.name + "/pods"
	h.node.servedList(t, list, protobuf)
	h.deletes(t, ending, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":300}`)
	h.deletes(t, ended, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":300}`)
	h.deletes(t, ended, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`)
	h.deletes(t, killed+"?gracePeriodSeconds=0", "")
	h.afterwards(t, func(t *testing.T) {
		if got := decodeAs[*corev1.Pod](t, h.node.get(t, ending, asJSON)); got.DeletionTimestamp == nil {
			t.Error("the pod is not being deleted")
		}
		h.readsAs(ended, http.StatusNotFound)(t)
		h.readsAs(killed, http.StatusNotFound)(t)
	})
}

// a write of the status takes an object's last finalizer: the answer shows an object that
// never was, and there is none any more.
func TestAStatusThatEndsAnObject(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	quotas := env.client.CoreV1().ResourceQuotas(s.name)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", Finalizers: []string{"edgehub.io/test"}}}
	if _, err := quotas.Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/namespaces/" + s.name + "/resourcequotas/q"
	h.deletes(t, path, "")
	before := decodeAs[*corev1.ResourceQuota](t, h.node.get(t, path, asJSON))
	a := h.node.send(t, http.MethodPatch, path+"/status", asJSON, merge, []byte(`{"metadata":{"finalizers":null},"status":{"hard":{"pods":"7"}}}`))
	if a.status != http.StatusOK {
		t.Fatal(a)
	}
	if after := decodeAs[*corev1.ResourceQuota](t, a); after.ResourceVersion != before.ResourceVersion || after.Status.Hard.Pods().Value() != 7 {
		t.Errorf("the answer is of version %s, before it was %s: %v", after.ResourceVersion, before.ResourceVersion, after.Status)
	}
	if _, err := quotas.Get(t.Context(), "q", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the apiserver still has it: %v", err)
	}
	h.afterwards(t, h.readsAs(path, http.StatusNotFound))
}

// a pod of the node that a watch of the node's pods says is deleted is gone: there is no
// other way to leave that selector.
func TestAPodOfTheNodeThatIsDeleted(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	h.makeNode()
	path := s.podPath(h.name, "p")
	pods := "/api/v1/pods?fieldSelector=spec.nodeName%3D" + h.name
	h.node.servedList(t, "/api/v1/namespaces/"+s.name+"/pods", protobuf)
	l := h.node.servedList(t, pods, protobuf)
	h.node.get(t, path, asJSON)
	w := h.node.watch(t, with(pods, watchQuery+"&resourceVersion="+l.version), protobuf)
	zero := int64(0)
	if err := env.client.CoreV1().Pods(s.name).Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	for e := w.change(t); e.kind != watch.Deleted; e = w.change(t) {
		if e.kind != watch.Modified {
			t.Fatalf("got %s", e.kind)
		}
	}
	h.afterwards(t, h.readsAs(path, http.StatusNotFound))
}

// after a deletion of many objects it is not known which are gone, until a list says so, or
// a GET.
func TestADeletionOfMany(t *testing.T) {
	t.Parallel()
	h, s, other := newHub(t), newSpace(t), newSpace(t)
	s.fill("c", 2, "color=red")
	s.fill("d", 2)
	other.fill("c", 1)
	h.node.servedList(t, s.path, protobuf)
	h.node.servedList(t, other.path, protobuf)
	h.deletes(t, s.selected("color=red"), "")
	h.node.get(t, s.one("d-000"), asJSON)
	h.afterwards(t, func(t *testing.T) {
		h.readsAs(s.one("c-000"), http.StatusServiceUnavailable)(t)
		h.readsAs(s.one("d-001"), http.StatusServiceUnavailable)(t)
		h.readsAs(s.one("d-000"), http.StatusOK)(t)
		h.readsAs(other.one("c-000"), http.StatusOK)(t)
	})
	h.connect()
	h.node.servedList(t, s.path, protobuf)
	h.afterwards(t, func(t *testing.T) {
		h.readsAs(s.one("c-000"), http.StatusNotFound)(t)
		h.readsAs(s.one("d-001"), http.StatusOK)(t)
	})
}

// copies of single objects are bounded. One that had to go is not taken for something that
// never was, whatever an older list says.
func TestACopyThatHadToGoIsNoAbsence(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	h.node.servedList(t, s.path, protobuf)
	const n = 1100 // maxSingles is 1,024
	for i := range n {
		name := fmt.Sprintf("c-%04d", i)
		s.create(name)
		h.node.get(t, s.one(name), asJSON)
	}
	h.awaitDisk()
	h.cut()
	for i := range n {
		if a := h.node.do(t, request{path: s.one(fmt.Sprintf("c-%04d", i)), accept: asJSON}); a.status == http.StatusNotFound || i > n-500 && a.status != http.StatusOK {
			t.Fatalf("copy %d: %v", i, a)
		}
	}
}
