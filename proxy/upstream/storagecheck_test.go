package upstream_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// answer is how an apiserver answers one path.
type answer func(w http.ResponseWriter, r *http.Request)

func answerWith(code int) answer {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func breaksOff(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// slowly is what an apiserver does whose storage hangs: it heeds the request's timeout.
func slowly(w http.ResponseWriter, r *http.Request) {
	limit, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil {
		limit = time.Minute
	}
	select {
	case <-time.After(limit):
		w.WriteHeader(http.StatusGatewayTimeout)
	case <-r.Context().Done():
	}
}

// In doubt, a read of the node's Lease decides whether the apiserver serves the node.
func TestInDoubtTheApiserversStorageDecides(t *testing.T) {
	tests := map[string]struct {
		lease, readyz answer
		lost          bool
		within        time.Duration
	}{
		"a Lease that is there":                                      {answerWith(200), answerWith(500), false, time.Second},
		"a node that has no Lease":                                   {answerWith(404), answerWith(500), false, time.Second},
		"a Lease that the node may not read":                         {answerWith(403), answerWith(200), false, time.Second},
		"a Lease that the node may not read, of a broken apiserver":  {answerWith(403), answerWith(500), true, time.Second},
		"a Lease that the node may not read, without backends":       {answerWith(403), answerWith(503), true, time.Second},
		"a cluster where the node may read neither Lease nor readyz": {answerWith(403), answerWith(403), false, time.Second},
		"a node that is not authenticated":                           {answerWith(401), answerWith(200), false, time.Second},
		"a node that is not authenticated, of a broken apiserver":    {answerWith(401), answerWith(500), true, time.Second},
		"etcd that is gone":                                          {answerWith(500), answerWith(500), true, time.Second},
		"a balancer that has no backends":                            {answerWith(503), answerWith(503), true, time.Second},
		"an apiserver that is overloaded":                            {answerWith(429), answerWith(200), true, time.Second},
		"etcd that hangs":                                            {slowly, hangs, true, 6 * time.Second},
		"a balancer whose backends hang":                             {hangs, hangs, true, 21 * time.Second},
		"an apiserver that aborts requests":                          {breaksOff, breaksOff, true, time.Second},
	}
	for name, tt := range tests {
		for _, protocol := range []string{"", " by HTTP/1.1"} {
			t.Run(name+protocol, func(t *testing.T) {
				var sick atomic.Bool
				api := func(w http.ResponseWriter, r *http.Request) {
					switch {
					case !sick.Load():
					case r.URL.Path == nodeLease:
						tt.lease(w, r)
					case r.URL.Path == "/readyz":
						tt.readyz(w, r)
					case r.URL.Path == pods:
						w.WriteHeader(http.StatusGatewayTimeout)
					}
				}
				inCloud(t, api, local(), func(t *testing.T, c *cloud) {
					c.mustGet(nodes)
					sick.Store(true)
					for range upstream.DefaultBadAnswers {
						if code, _, took, err := c.get(pods); code != http.StatusGatewayTimeout || took > 100*time.Millisecond {
							t.Errorf("%d, %v after %v; want the apiserver's own answer at once", code, err, took)
						}
					}
					if _, took := c.mustGet(nodes); took > 100*time.Millisecond {
						t.Errorf("another request waited %v while the hub asked", took)
					}
					time.Sleep(tt.within)
					synctest.Wait() // what is written to the log meanwhile is read here
					if c.isLost() != tt.lost {
						t.Fatalf("lost: %v; log:\n%s", c.isLost(), c.log)
					}
					time.Sleep(5 * time.Minute)
					synctest.Wait()
					if c.isLost() != tt.lost || strings.Count(c.log.String(), "WARN") > 1 {
						t.Errorf("lost: %v; log:\n%s", c.isLost(), c.log)
					}
					sick.Store(false)
					time.Sleep(upstream.MaxProbeFactor*upstream.DefaultProbe + tt.within)
					c.mustGet(pods)
				})
			})
		}
	}
}

// A check is repeated if its connection breaks.
func TestTheQuestionIsAskedAgainWhereItsConnectionBreaks(t *testing.T) {
	var asked atomic.Int64
	api := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == nodeLease && asked.Add(1) == 1:
			breakOff(r)
		case r.URL.Path == pods:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	hub := newHub(t, upstream.Credentials{}, api)
	lost := hub.upstream.Lost(t.Context())
	for range upstream.DefaultBadAnswers {
		if code, _ := ask(t, hub, "GET", "", ""); code != http.StatusServiceUnavailable {
			t.Errorf("%d", code)
		}
	}
	until(t, "the second question was asked", func() bool { return asked.Load() == 2 })
	if code, _ := ask(t, hub, "GET", "", ""); code != http.StatusServiceUnavailable || isClosed(lost) {
		t.Errorf("%d; lost: %v", code, isClosed(lost))
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// On a narrow link, the answer to the check may wait behind a list for longer than its deadline.
func TestAQuestionBehindALongListIsNoLoss(t *testing.T) {
	api := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case nodes:
			io.WriteString(w, strings.Repeat("x", 4<<20)) // 64 s
		case pods:
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	}
	narrow := []*fakeNetwork{{delay: 100 * time.Millisecond, rate: 64 << 10}}
	inCloud(t, api, narrow, func(t *testing.T, c *cloud) {
		for range upstream.DefaultBadAnswers - 1 {
			_, _, _, _ = c.get(pods)
		}
		read := make(chan error, 1)
		go func() {
			_, _, _, err := c.get(nodes)
			read <- err
		}()
		time.Sleep(time.Second)
		if code, _, took, err := c.get(pods); code != http.StatusGatewayTimeout {
			t.Errorf("%d, %v after %v", code, err, took)
		}
		if err := <-read; err != nil || c.isLost() || strings.Contains(c.log.String(), "WARN") {
			t.Errorf("%v; log:\n%s", err, c.log)
		}
	})
}

// A request that was under way when the apiserver was declared lost is answered as if it
// had come later, if that does no harm.
func TestWhatIsUnderWayAtALossIsAnsweredElsewhere(t *testing.T) {
	s := &storm{code: 503}
	api := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("slow") {
			time.Sleep(10 * time.Second)
		}
		s.ServeHTTP(w, r)
	}
	inCloud(t, api, local(), func(t *testing.T, c *cloud) {
		s.on.Store(true)
		read, written := make(chan error, 1), make(chan int, 1)
		go func() {
			_, _, _, err := c.get(pods + "?slow")
			read <- err
		}()
		go func() {
			code, _, _, _ := c.post(pods + "?slow")
			written <- code
		}()
		for range upstream.DefaultBadAnswers {
			_, _, _, _ = c.get(pods)
		}
		var unreachable *upstream.UnreachableError
		if err := <-read; !errors.As(err, &unreachable) {
			t.Errorf("a read got %v", err)
		}
		if code := <-written; code != 503 {
			t.Errorf("a write got %d, want the apiserver's own answer", code)
		}
	})
}
