package cache

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	// switchBound is how long a GET or LIST may take that finds the cloud gone: 3 s are
	// promised. The hub does not count time in which it does not get the processor, and
	// neither do tests: see lag.
	switchBound = 4 * time.Second
	// knownBound is the same once the loss is known: 10 ms are promised, and measured by
	// the benchmark; here many programs share two cores.
	knownBound = 500 * time.Millisecond
)

// invariant 19: answers other than 2xx overwrite nothing; 403 takes the right to read
// away (see TestInvariant18), and that is all that any of them does.
func TestInvariant19_RefusalsOverwriteNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code   int
		reason metav1.StatusReason
	}{
		{http.StatusBadRequest, metav1.StatusReasonBadRequest},
		{http.StatusUnauthorized, metav1.StatusReasonUnauthorized},
		{http.StatusConflict, metav1.StatusReasonConflict},
		{http.StatusGone, metav1.StatusReasonExpired},
		{http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests},
		{http.StatusInternalServerError, metav1.StatusReasonInternalError},
		{http.StatusBadGateway, metav1.StatusReasonInternalError},
		{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
		{http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
	} {
		t.Run(fmt.Sprint(c.code), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			list := answering(t, fakeList(100, 5, ""), protobuf)
			one := fakeMap("c-001", 2)
			get := answering(t, &one, protobuf)
			f.script(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == fakeMaps {
					list(w, r)
				} else {
					get(w, r)
				}
			}, nil)
			h := newHubBefore(t, f)
			before, object := h.node.get(t, fakeMaps, protobuf), h.node.get(t, fakeMaps+"/c-001", protobuf)
			f.script(failing(c.code, c.reason), failing(c.code, c.reason))
			// Once each: after a few that say the apiserver is not well, the hub asks
			// by itself.
			h.node.refused(t, request{path: fakeMaps, accept: protobuf}, c.code)
			h.node.try(t.Context(), request{path: fakeMaps + "/c-001", accept: protobuf})
			if w := h.node.watch(t, fakeMaps+"?"+watchQuery+"&resourceVersion=100", protobuf); w.status == http.StatusOK && c.code < 500 && c.code != http.StatusTooManyRequests {
				t.Errorf("the watch is answered with %d, want %d", w.status, c.code)
			}
			h.cut()
			if after := h.node.get(t, fakeMaps, protobuf); !bytes.Equal(after.body, before.body) {
				t.Errorf("the list is not what it was: %v", after)
			}
			if after := h.node.get(t, fakeMaps+"/c-001", protobuf); !bytes.Equal(after.body, object.body) {
				t.Errorf("the object is not what it was: %v", after)
			}
		})
	}
}

// invariant 19: 404 on a LIST says that the kind is gone. What was read of it is not
// served as if it were there, nor as an empty list.
func TestInvariant19_AKindThatIsGone(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.script(answering(t, fakeList(100, 5, ""), asJSON), nil)
	h := newHubBefore(t, f)
	h.node.get(t, fakeMaps, asJSON)
	f.script(failing(http.StatusNotFound, metav1.StatusReasonNotFound), nil)
	h.node.refused(t, request{path: fakeMaps, accept: asJSON}, http.StatusNotFound)
	h.cut()
	if a := h.node.do(t, request{path: fakeMaps, accept: asJSON}); a.status != http.StatusNotFound && a.status != http.StatusServiceUnavailable {
		t.Errorf("want 404 or 503; got %v", a)
	}
}

// losses are the ways in which the cloud can go.
func losses() []loss {
	return []loss{
		{"connections are refused", func(_ *testing.T, h *hub) { h.cut() }},
		{"connections are reset, again and again", func(t *testing.T, h *hub) {
			ticker, done := time.NewTicker(time.Millisecond), make(chan struct{}) // too often for an answer to begin
			var all sync.WaitGroup
			all.Go(func() {
				for {
					select {
					case <-ticker.C:
						h.link.Reset()
					case <-done:
						return
					}
				}
			})
			t.Cleanup(func() { close(done); all.Wait(); ticker.Stop() })
		}},
		{"packets are swallowed", func(t *testing.T, h *hub) { h.blackHole() }},
		{"the apiserver hangs", func(t *testing.T, _ *hub) {
			if err := env.APIServer().Freeze(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = env.APIServer().Cont() })
		}},
		{"the apiserver is killed", func(t *testing.T, _ *hub) {
			if err := env.APIServer().Kill(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { env.restartAPIServer(t) })
		}},
	}
}

type loss struct {
	name string
	lose func(*testing.T, *hub)
}

// invariant 19: a loss of the cloud is noticed, whatever it looks like, by requests that come
// then, and by those that are under way: all get what was read before.
func TestInvariant19_LossIsNoticed(t *testing.T) {
	for _, c := range losses() {
		t.Run(c.name, func(t *testing.T) {
			h, s := newHub(t), newSpace(t)
			s.fill("c", 3)
			list, object := h.node.get(t, s.path, protobuf), h.node.get(t, s.one("c-001"), protobuf)
			w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+list.listing(t).version), protobuf)
			c.lose(t, h)
			var all sync.WaitGroup
			for i := range 6 {
				path, want := s.path, list
				if i%2 == 1 {
					path, want = s.one("c-001"), object
				}
				all.Go(func() {
					if a := h.node.try(t.Context(), request{path: path, accept: protobuf}); a.status != http.StatusOK || !bytes.Equal(a.body, want.body) {
						t.Errorf("request %d: %v", i, a)
					}
				})
			}
			all.Wait()
			h.node.do(t, request{path: "/api/v1/pods", accept: protobuf}).unavailable(t)
			w.silent(t, quiet/2)
		})
	}
}

// The same within the bound, also for requests that come while the first are still waiting, and
// at once when the loss is known.
func TestMeasuredLossIsNoticedInTime(t *testing.T) {
	for _, c := range losses() {
		t.Run(c.name, func(t *testing.T) {
			h, s := newHub(t), newSpace(t)
			s.fill("c", 3)
			busy := measureLag(t)
			list, object := h.node.get(t, s.path, protobuf), h.node.get(t, s.one("c-001"), protobuf)
			review := whose(s.account("alice"))
			h.node.ask(t, review, protobuf)
			c.lose(t, h)
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() { // at once, and while the first are still waiting
					<-time.After(time.Duration(i) * 300 * time.Millisecond)
					path, want := s.path, list
					if i%2 == 1 {
						path, want = s.one("c-001"), object
					}
					before := busy.total()
					a := h.node.try(t.Context(), request{path: path, accept: protobuf})
					bound := switchBound + busy.total() - before
					if a.status != http.StatusOK || !bytes.Equal(a.body, want.body) {
						t.Errorf("request %d: %v", i, a)
					}
					if a.took > bound {
						t.Errorf("request %d was answered after %v; want at most %v", i, a.took, bound)
					}
					t.Logf("request %d was answered after %v", i, a.took.Round(time.Millisecond))
				})
			}
			all.Wait()
			slowest := time.Duration(0)
			for range 20 {
				before := busy.total()
				a := h.node.get(t, s.one("c-001"), protobuf)
				slowest = max(slowest, a.took-(busy.total()-before))
			}
			t.Logf("the slowest of 20, once the loss is known: %v", slowest.Round(time.Millisecond))
			if slowest > knownBound {
				t.Errorf("once the loss is known an answer took %v; want at most %v", slowest, knownBound)
			}
			before := busy.total()
			a := h.node.do(t, request{path: "/api/v1/pods", accept: protobuf})
			a.unavailable(t)
			if took := a.took - (busy.total() - before); took > knownBound {
				t.Errorf("503 took %v", took)
			}
			asked := time.Now()
			before = busy.total()
			h.node.ask(t, review, protobuf)
			if took := time.Since(asked) - (busy.total() - before); took > knownBound {
				t.Errorf("a review took %v", took)
			}
		})
	}
}

// an apiserver that answers 502, 503, 504 or 429 to everything, the hub's own question
// among it, counts as lost after a few, and is back when it answers otherwise.
func TestAnApiserverThatRefusesEverythingIsLost(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.script(answering(t, fakeList(100, 5, ""), protobuf), nil)
			h := newHubBefore(t, f)
			before := h.node.get(t, fakeMaps, protobuf)
			f.replace(failing(code, metav1.StatusReasonServiceUnavailable))
			poll.Until(t, patience, "the list comes from the cache", func() bool {
				a := h.node.do(t, request{path: fakeMaps, accept: protobuf})
				return a.status == http.StatusOK && bytes.Equal(a.body, before.body)
			})
			f.replace(nil)
			f.script(answering(t, fakeList(101, 6, ""), protobuf), nil)
			poll.Until(t, patience, "the list comes from the cloud", func() bool {
				return len(h.node.get(t, fakeMaps, protobuf).listing(t).items) == 6
			})
		})
	}
}

// a link that is slow, but answers pings, is not lost: a LIST that takes many times the
// bound comes whole, and from the cloud.
func TestASlowLinkIsNoLoss(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.script(answering(t, fakeList(100, 5, ""), protobuf), nil)
	h := newHubBefore(t, f)
	h.node.get(t, fakeMaps, protobuf)
	body := encode(t, fakeList(200, 20, ""), protobuf)
	f.script(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", protobuf)
		control := http.NewResponseController(w)
		const pieces = 8
		for i := range pieces {
			select { // the first byte comes late as well
			case <-time.After(time.Second):
			case <-r.Context().Done():
				return
			}
			_, _ = w.Write(body[len(body)*i/pieces : len(body)*(i+1)/pieces])
			_ = control.Flush()
		}
	}, nil)
	h.link.SetDelay(750 * time.Millisecond) // each way
	a := h.node.get(t, fakeMaps, protobuf)
	if !bytes.Equal(a.body, body) {
		t.Errorf("want the list at 200, got it at %s after %v", a.listing(t).version, a.took)
	}
	if up, ok := h.metric("edgehub_upstream_up"); !ok || up != 1 {
		t.Errorf("edgehub_upstream_up is %v, %v", up, ok)
	}
	if h.logged("cannot be reached") {
		t.Error("the slow link was taken for a loss")
	}
}

// the cloud is back within 3 s plus jitter, after a refusal as after a black hole.
func TestMeasuredTheReturnIsNoticed(t *testing.T) {
	t.Parallel()
	h, s := newHub(t, withArgs("--reconnect-jitter=2s")), newSpace(t) // the default
	s.create("c")
	list := h.node.servedList(t, s.path, protobuf)
	w := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+list.version), protobuf)
	for name, lose := range map[string]func(){"refused": h.cut, "swallowed": h.blackHole} {
		lose()
		h.node.get(t, s.path, protobuf)
		poll.Until(t, patience, "the hub knows", func() bool { return !h.online() })
		s.change("c", name)
		began := time.Now()
		h.connect()
		online := time.Since(began)
		w.expect(t, watch.Modified, "c")
		t.Logf("%s: requests pass after %v, the watch goes on after %v", name, online.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		const bound = 8 * time.Second // 3 s and jitter are promised
		if took := time.Since(began); took > bound {
			t.Errorf("%s: the watch went on after %v; want at most %v", name, took, bound)
		}
	}
}
