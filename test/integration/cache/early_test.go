package cache

import (
	"bytes"
	"context"
	"net/http"
	"testing"
)

// A hub that starts into a black hole does not keep programs waiting that accept any state: here the
// loss would be noticed only after minutes.
func TestAHubThatStartsIntoABlackHoleAnswersWhatMayBeOld(t *testing.T) {
	t.Parallel()
	h, s := newHub(t, withArgs("--upstream-loss-timeout=10m")), newSpace(t)
	s.fill("c", 3)
	list, object := h.node.get(t, s.path, protobuf), h.node.get(t, s.one("c-001"), protobuf)
	h.stop()
	h.blackHole()
	h.start()
	newest, cancel := context.WithCancel(t.Context())
	waited := make(chan answer)
	go func() { waited <- h.node.try(newest, request{path: s.path, accept: protobuf}) }()
	for path, want := range map[string]answer{s.path: list, s.one("c-001"): object} {
		if a := h.node.get(t, with(path, "resourceVersion=0"), protobuf); a.status != http.StatusOK || !bytes.Equal(a.body, want.body) {
			t.Errorf("%s: %v, want %v", path, a, want)
		}
	}
	select {
	case a := <-waited:
		t.Errorf("the newest list does not wait for the cloud: %v", a)
	default:
	}
	cancel()
	<-waited
}
