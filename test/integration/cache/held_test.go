package cache

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// a watch that is open when the cloud goes is held, and goes on where it was when the cloud is back, in one
// outage after the other.
func TestAWatchOutlivesOutages(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	l := h.node.servedList(t, s.path, protobuf)
	w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+l.version), protobuf)
	other := h.node.watch(t, with(s.named("c-001"), watchListQuery), asJSON)
	other.initial(t)
	for i, lose := range []func(){h.cut, h.blackHole} {
		lose()
		s.change("c-001", fmt.Sprint("outage ", i))
		name := fmt.Sprintf("new-%d", i)
		s.create(name)
		s.remove(name)
		w.silent(t, quiet/4)
		h.connect()
		w.expect(t, watch.Modified, "c-001")
		w.expect(t, watch.Added, name)
		w.expect(t, watch.Deleted, name)
		other.expect(t, watch.Modified, "c-001")
	}
}
