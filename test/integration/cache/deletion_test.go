package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// What is known of single objects outlives the hub: in each case the node reads and writes in a namespace, and what
// it reads offline is checked without the cloud, after a restart of the hub, and after a kill.
func TestWhatIsKnownOfAnObject(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.makeNode()
	checks := map[string]func(*testing.T){}
	for name, do := range map[string]func(*testing.T, *hub, *space) (check func(*testing.T)){
		"an object with finalizers is served until the last is removed":        finalizers,
		"a pod is served while it has time to end":                             gracePeriods,
		"a write of the status that removes the last finalizer ends an object": endedByItsStatus,
		"a pod that the watch of its node's pods says is deleted is gone":      podOfTheNode,
		"after a deletion of many it is not known which are gone":              deletionOfMany,
		"what leaves a selector is not deleted (protobuf)":                     leavingASelector(protobuf),
		"what leaves a selector is not deleted (JSON)":                         leavingASelector(asJSON),
		"a copy in protobuf follows a watch in JSON":                           copyFollowsAWatch(protobuf, asJSON),
		"a copy in JSON follows a watch in protobuf":                           copyFollowsAWatch(asJSON, protobuf),
		"what is there again under the name of a deleted object is served":     createdAgain,
	} {
		t.Run(name, func(t *testing.T) { checks[name] = do(t, h, newSpace(t)) })
	}
	for _, when := range []struct {
		name string
		do   func()
	}{{"offline", h.cut}, {"after a restart", h.stop}, {"after a kill", h.kill}} {
		h.awaitDisk()
		if when.do(); when.name != "offline" {
			h.start()
		}
		for name, check := range checks {
			t.Run(when.name+", "+name, check)
		}
	}
}

// deletes is the node's DELETE, with options.
func (h *hub) deletes(t *testing.T, path, options string) {
	t.Helper()
	a := h.node.send(t, http.MethodDelete, path, asJSON, asJSON, []byte(options))
	if a.status != http.StatusOK && a.status != http.StatusAccepted {
		t.Fatal(a)
	}
}

// podPath makes a pod of the hub's node.
func (s *space) podPath(node, name string) string {
	s.t.Helper()
	return "/api/v1/namespaces/" + s.name + "/pods/" + s.pod(node, name).Name
}

// readsAs fails the test unless a GET in any representation is answered with a status.
func (h *hub) readsAs(t *testing.T, path string, status int) {
	t.Helper()
	for _, accept := range []string{protobuf, asJSON} {
		h.node.refused(t, request{path: path, accept: accept}, status)
	}
}

// The answer to the DELETE shows the object, which is not gone yet.
func finalizers(t *testing.T, h *hub, s *space) (check func(*testing.T)) {
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
	return func(t *testing.T) {
		if got := decodeAs[*corev1.ConfigMap](t, h.node.get(t, s.one("c-000"), protobuf)); got.DeletionTimestamp == nil {
			t.Error("the object is not being deleted")
		}
		h.readsAs(t, s.one("c-001"), http.StatusNotFound)
	}
}

func gracePeriods(t *testing.T, h *hub, s *space) (check func(*testing.T)) {
	ending, ended, killed := s.podPath(h.name, "ending"), s.podPath(h.name, "ended"), s.podPath(h.name, "killed")
	h.node.servedList(t, "/api/v1/namespaces/"+s.name+"/pods", protobuf)
	h.deletes(t, ending, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":300}`)
	h.deletes(t, ended, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":300}`)
	h.deletes(t, ended, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`)
	h.deletes(t, killed+"?gracePeriodSeconds=0", "")
	return func(t *testing.T) {
		if got := decodeAs[*corev1.Pod](t, h.node.get(t, ending, asJSON)); got.DeletionTimestamp == nil {
			t.Error("the pod is not being deleted")
		}
		h.readsAs(t, ended, http.StatusNotFound)
		h.readsAs(t, killed, http.StatusNotFound)
	}
}

// The answer shows an object that never was.
func endedByItsStatus(t *testing.T, h *hub, s *space) (check func(*testing.T)) {
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
	return func(t *testing.T) { h.readsAs(t, path, http.StatusNotFound) }
}

// There is no other way to leave that selector.
func podOfTheNode(t *testing.T, h *hub, s *space) (check func(*testing.T)) {
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
	for e := w.change(t); e.kind != watch.Deleted || e.name != "p"; e = w.change(t) {
		if e.kind != watch.Modified {
			t.Fatalf("got %s", e.kind)
		}
	}
	return func(t *testing.T) { h.readsAs(t, path, http.StatusNotFound) }
}

// A GET says it, or a list.
func deletionOfMany(t *testing.T, h *hub, s *space) (check func(*testing.T)) {
	listed, other := newSpace(t), newSpace(t)
	for _, s := range []*space{s, listed} {
		s.fill("c", 2, "color=red")
		s.fill("d", 2)
		h.node.servedList(t, s.path, protobuf)
		h.deletes(t, s.selected("color=red"), "")
	}
	other.fill("c", 1)
	h.node.servedList(t, other.path, protobuf)
	h.node.get(t, s.one("d-000"), asJSON)
	h.node.servedList(t, listed.path, protobuf)
	return func(t *testing.T) {
		h.readsAs(t, s.one("c-000"), http.StatusServiceUnavailable)
		h.readsAs(t, s.one("d-001"), http.StatusServiceUnavailable)
		h.readsAs(t, s.one("d-000"), http.StatusOK)
		h.readsAs(t, other.one("c-000"), http.StatusOK)
		h.readsAs(t, listed.one("c-000"), http.StatusNotFound)
		h.readsAs(t, listed.one("d-001"), http.StatusOK)
	}
}

// defect 10 and invariant 5: DELETED in the watch of a selector says that the object has left its set, and that it has changed:
// what is older is not served, and proves nothing together with an older list.
func leavingASelector(accept string) func(*testing.T, *hub, *space) (check func(*testing.T)) {
	return func(t *testing.T, h *hub, s *space) func(*testing.T) {
		s.fill("c", 2, "color=red")
		h.node.servedList(t, s.path, accept)
		red := h.node.servedList(t, s.selected("color=red"), accept)
		w := h.node.watch(t, with(s.selected("color=red"), watchQuery+"&resourceVersion="+red.version), accept)
		for _, name := range []string{"read", "watched"} {
			s.create(name, "color=red")
			w.expect(t, watch.Added, name)
		}
		h.node.get(t, s.one("read"), accept)
		for _, name := range []string{"read", "watched"} {
			patch := []byte(`{"metadata":{"labels":{"color":"blue"}}}`)
			if _, err := s.maps.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			w.expect(t, watch.Deleted, name)
		}
		return func(t *testing.T) {
			h.readsAs(t, s.one("read"), http.StatusServiceUnavailable)
			h.readsAs(t, s.one("watched"), http.StatusServiceUnavailable) // it was there after the list
			h.readsAs(t, s.one("nobody"), http.StatusNotFound)
			if l := h.node.servedList(t, s.selected("color=red"), accept); len(l.items) != 2 {
				t.Errorf("red are %v", l.names())
			}
		}
	}
}

// defect 11.
func copyFollowsAWatch(read, watched string) func(*testing.T, *hub, *space) (check func(*testing.T)) {
	return func(t *testing.T, h *hub, s *space) func(*testing.T) {
		s.fill("c", 2)
		query := s.path + "?fieldSelector=metadata.namespace%3D" + s.name
		l := h.node.servedList(t, query, watched)
		for _, name := range []string{"c-000", "c-001"} {
			h.node.get(t, s.one(name), read)
		}
		w := h.node.watch(t, with(query, watchQuery+"&resourceVersion="+l.version), watched)
		version := s.change("c-000", "second")
		w.expect(t, watch.Modified, "c-000")
		s.remove("c-001")
		w.expect(t, watch.Deleted, "c-001")
		return func(t *testing.T) {
			if got := decodeAs[*corev1.ConfigMap](t, h.node.get(t, s.one("c-000"), read)); got.ResourceVersion != version {
				t.Errorf("the copy is at version %s, want %s", got.ResourceVersion, version)
			}
			h.readsAs(t, s.one("c-001"), http.StatusNotFound)
		}
	}
}

func createdAgain(t *testing.T, h *hub, s *space) (check func(*testing.T)) {
	s.fill("c", 3)
	l := h.node.servedList(t, s.path, protobuf)
	w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+l.version), protobuf)
	created := func(path, name string) answer {
		body := fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q},"data":{"value":"again"}}`, name)
		return h.node.send(t, http.MethodPost, path, asJSON, asJSON, body)
	}
	for i, again := range []func(name string){
		func(name string) { // read by a GET
			s.create(name)
			h.node.get(t, s.one(name), asJSON)
		},
		func(name string) { // seen in a watch
			s.create(name)
			w.expect(t, watch.Added, name)
		},
		func(name string) { // created by the user, and not read since
			w.stop()
			if a := created(s.path, name); a.status != http.StatusCreated {
				t.Fatal(a)
			}
		},
	} {
		name := fmt.Sprintf("c-%03d", i)
		if a := h.node.do(t, request{method: http.MethodDelete, path: s.one(name), accept: asJSON}); a.status != http.StatusOK {
			t.Fatal(a)
		}
		if i < 2 {
			w.expect(t, watch.Deleted, name)
		}
		again(name)
		if i == 0 {
			w.expect(t, watch.Added, name)
		}
	}
	return func(t *testing.T) {
		for i, want := range []string{"first of c-", "first of c-", "again"} {
			if a := h.node.get(t, s.one(fmt.Sprintf("c-%03d", i)), asJSON); !strings.Contains(string(a.body), want) {
				t.Errorf("want %q: %v", want, a)
			}
		}
	}
}
