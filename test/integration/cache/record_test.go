package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// afterwards takes the cloud away, and checks then, after a restart of the hub, and after a
// kill: what is known of an object has to survive both.
func (h *hub) afterwards(t *testing.T, check func(t *testing.T)) {
	t.Helper()
	h.awaitDisk()
	h.cut()
	t.Run("offline", check)
	h.stop()
	h.start()
	t.Run("offline, after a restart", check)
	h.kill()
	h.start()
	t.Run("offline, after a kill", check)
}

// readsAs returns a check that a GET in any representation is answered with a status.
func (h *hub) readsAs(path string, status int) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		for _, accept := range []string{protobuf, asJSON} {
			if a := h.node.do(t, request{path: path, accept: accept}); a.status != status {
				t.Errorf("GET as %s: want %d; got %v", accept, status, a)
			}
		}
	}
}

// relabel changes the label color of a ConfigMap at the apiserver.
func (s *space) relabel(name, color string) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"color":%q}}}`, color)
	if _, err := s.maps.Patch(s.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// defect 10: DELETED in the watch of a selector says that the object has left it. It takes
// nothing away from a GET, and proves nothing together with an older list.
func TestLeavingASelectorIsNoDeletion(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{protobuf, asJSON} {
		t.Run(accept, func(t *testing.T) {
			t.Parallel()
			h, s := newHub(t), newSpace(t)
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
				s.relabel(name, "blue")
				w.expect(t, watch.Deleted, name)
			}
			h.afterwards(t, func(t *testing.T) {
				h.readsAs(s.one("read"), http.StatusOK)(t)
				h.readsAs(s.one("watched"), http.StatusServiceUnavailable)(t) // it was there after the list
				h.readsAs(s.one("nobody"), http.StatusNotFound)(t)
			})
		})
	}
}

// defect 11: a copy in one representation follows the events of a watch in the other.
func TestACopyFollowsAWatchInTheOtherRepresentation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ read, watched string }{{protobuf, asJSON}, {asJSON, protobuf}} {
		t.Run(c.watched+" watched", func(t *testing.T) {
			t.Parallel()
			h, s := newHub(t), newSpace(t)
			s.fill("c", 2)
			query := s.path + "?fieldSelector=metadata.namespace%3D" + s.name
			l := h.node.servedList(t, query, c.watched)
			for _, name := range []string{"c-000", "c-001"} {
				h.node.get(t, s.one(name), c.read)
			}
			w := h.node.watch(t, with(query, watchQuery+"&resourceVersion="+l.version), c.watched)
			version := s.change("c-000", "second")
			w.expect(t, watch.Modified, "c-000")
			s.remove("c-001")
			w.expect(t, watch.Deleted, "c-001")
			h.afterwards(t, func(t *testing.T) {
				if got := decodeAs[*corev1.ConfigMap](t, h.node.get(t, s.one("c-000"), c.read)); got.ResourceVersion != version {
					t.Errorf("the copy is at version %s, want %s", got.ResourceVersion, version)
				}
				h.readsAs(s.one("c-001"), http.StatusNotFound)(t)
			})
		})
	}
}

// an object that is there again under the name of one that was deleted is served.
func TestWhatIsCreatedAgainIsServed(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
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
	h.afterwards(t, func(t *testing.T) {
		for i := range 3 {
			a := h.node.get(t, s.one(fmt.Sprintf("c-%03d", i)), asJSON)
			if want := map[bool]string{true: "again", false: "first of c-"}[i == 2]; !strings.Contains(string(a.body), want) {
				t.Errorf("want %q: %v", want, a)
			}
		}
	})
}
