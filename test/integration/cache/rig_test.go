package cache

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// The rig has to be right before anything that it shows about the hub is.
func TestTheRigItself(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3, "a=b")
	mark := env.audit.mark(t)
	for _, accept := range []string{protobuf, asJSON} {
		l := h.node.servedList(t, s.path, accept)
		if len(l.items) != 4 {
			t.Fatalf("the list has %v", l.names())
		}
		w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+l.version), accept)
		s.create("new-" + accept[len(accept)-4:])
		w.expect(t, watch.Added, "new-"+accept[len(accept)-4:])
		w.stop()
		s.remove("new-" + accept[len(accept)-4:])
	}
	items, version := h.node.watch(t, with(s.path, watchListQuery), protobuf).initial(t)
	if len(items) != 4 || version == "" {
		t.Errorf("the WatchList has %v at %s", items, version)
	}
	if reads, _ := wholeReads(env.audit.since(t, mark, h.user)); reads[s.path+"||"] != 3 {
		t.Errorf("the apiserver counts %v; want 3", reads)
	}
	token := s.account("reader")
	h.as(token).servedList(t, s.path, protobuf)
	h.withCert().servedList(t, s.path, protobuf)
	if a := h.as("nonsense").do(t, request{path: s.path}); a.status != http.StatusUnauthorized {
		t.Errorf("a token that is none: %v", a)
	}
	h.stop()
	h.cut()
	h.start()
	if h.online() {
		t.Error("the hub reaches the cloud through a link that refuses")
	}
	h.connect()
	h.kill()
	h.start()
	h.awaitOnline()
}
