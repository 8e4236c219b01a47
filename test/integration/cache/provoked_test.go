package cache

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// provocations are requests that an apiserver answers with 504, 503 or not at all,
// whoever asks.
func provocations(s *space) []string {
	return []string{
		s.path + "?timeout=1ns",
		"/api/v1/nodes?timeout=1ns",
		"/apis/coordination.k8s.io/v1/leases?timeout=1ns",
		s.path + "?resourceVersion=999999999&limit=500",
		"/apis/apps/v1/deployments?resourceVersion=999999999&timeout=1ms",
	}
}

// the apiserver answers 504 to ?timeout=1ns before it authenticates anybody: callers
// without credentials that ask so, as often as they can, do not take the cloud from the
// node, nor does the hub ask the apiserver often because of them.
func TestNoCallerCanProvokeALoss(t *testing.T) {
	h, s := newHub(t), newSpace(t)
	s.create("c")
	h.node.servedList(t, s.path, protobuf)
	stranger := h.as("garbage")
	for _, path := range provocations(s)[:3] {
		switch a := stranger.do(t, request{path: path, accept: asJSON}); a.status {
		case http.StatusUnauthorized, http.StatusGatewayTimeout:
		case http.StatusBadGateway: // its time was over while it answered: it breaks off
			if !strings.Contains(string(a.body), "received from peer") {
				t.Errorf("GET %s: %v; want what the apiserver does", path, a)
			}
		default:
			t.Errorf("GET %s: %v; want what the apiserver does", path, a)
		}
	}
	mark := env.audit.mark(t)
	const shortest, fewest = 4 * time.Second, 20 // writes: a busy machine takes longer for them
	began := time.Now()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() { provoke(ctx, h.as("garbage"), provocations(s), i) })
	}
	writes, refused := 0, 0
	for time.Since(began) < shortest || writes < fewest {
		body := fmt.Sprintf(`{"data":{"write":"%d"}}`, writes)
		a := h.node.do(t, request{method: http.MethodPatch, path: s.one("c"), accept: asJSON, contentType: "application/merge-patch+json", body: []byte(body)})
		if writes++; a.status != http.StatusOK {
			refused++
			t.Logf("write %d: %v", writes, a)
		}
	}
	end()
	all.Wait()
	took := time.Since(began)
	if refused > 0 {
		t.Errorf("%d of %d writes of the node were refused", refused, writes)
	}
	if h.logged("counts as lost") || h.logged("cannot be reached") {
		t.Error("the cloud was taken for lost")
	}
	questions := 0
	for _, r := range env.audit.since(t, mark, h.user) {
		if strings.Contains(r.RequestURI, "/leases/"+h.name) {
			questions++
		}
	}
	if most := 2 + bits.Len(1+uint(took/time.Second)); questions == 0 || questions > most { // at 0, 1, 3, 7 s ...
		t.Errorf("the hub asked the apiserver %d times in %v; want some, and at most %d", questions, took, most)
	}
}

// provoke asks for one path after the other. Every third request is not waited for.
func provoke(ctx context.Context, c *client, paths []string, first int) {
	for i := first; ctx.Err() == nil; i++ {
		one, cancel := ctx, context.CancelFunc(func() {})
		if i%3 == 0 {
			one, cancel = context.WithTimeout(ctx, 2*time.Millisecond)
		}
		c.try(one, request{path: paths[i%len(paths)], accept: asJSON})
		cancel()
	}
}

// an apiserver whose etcd hangs answers discovery, health checks and pings, and nothing
// that matters. It is lost to the node until its etcd goes on.
func TestAnApiserverWhoseStorageHangsIsLost(t *testing.T) {
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	before := h.node.get(t, s.one("c-001"), protobuf)
	if err := env.Etcd().Freeze(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Etcd().Cont() })
	var all sync.WaitGroup
	for range 3 { // as a client does that limits its requests
		all.Go(func() {
			a := h.node.do(t, request{path: s.one("c-002") + "?timeout=2s", accept: protobuf})
			if a.status != http.StatusGatewayTimeout && a.status != http.StatusBadGateway { // it may break off, too
				t.Errorf("want a failure after 2 s; got %v", a)
			}
		})
	}
	all.Wait()
	poll.Until(t, patience, "the hub knows that the apiserver is of no use", func() bool { return h.logged("counts as lost") })
	if a := h.node.get(t, s.one("c-001"), protobuf); !bytes.Equal(a.body, before.body) {
		t.Errorf("want what was read before; got %v", a)
	}
	if err := env.Etcd().Cont(); err != nil {
		t.Fatal(err)
	}
	h.awaitOnline()
}
