package transparency

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/internal/freeport"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	soakRequests = 10_000
	soakClients  = 16

	// What may be left after the soak on top of what was there before it: pools
	// and connections that are kept for reuse.
	extraGoroutines  = 20
	extraHeap        = 16 << 20
	extraConnections = 4
)

// TestNothingIsLeftOfRequestsThatEndBadly sends 10,000 requests, of which many
// are given up by their client, broken off upstream in the middle of a list, or
// met by an apiserver that restarts, and then looks for what they left behind.
func TestNothingIsLeftOfRequestsThatEndBadly(t *testing.T) {
	f := newFixture(t)
	for i := range 50 { // a list of some 5 MB
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)}, Data: map[string]string{"k": strings.Repeat("0123456789", 10_000)}}
		if _, err := f.client.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	server, err := url.Parse(f.cluster.ServerURL())
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := link.Listen(freeport.Address(t), server.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cloud.Close() })

	running := goleak.IgnoreCurrent()
	hub := f.startHub(t, "https://"+cloud.Addr())
	transport := &http.Transport{MaxIdleConnsPerHost: soakClients, DisableCompression: true}
	s := &soak{t: t, url: hub.plainURL, client: &http.Client{Transport: transport}, ended: make(map[string]*atomic.Int64)}
	for _, k := range soakKinds {
		s.ended[k.name] = new(atomic.Int64)
	}
	s.run(500, nil) // connections and pools are there
	transport.CloseIdleConnections()
	before := takeStock(cloud)

	s.run(soakRequests, func(n int) {
		switch {
		case n == soakRequests/2:
			if err := errors.Join(f.cluster.APIServer().Kill(), f.cluster.APIServer().Start(t.Context())); err != nil {
				t.Errorf("restart the apiserver: %v", err)
			}
		case n%500 == 0:
			cloud.ResetAfter(1 << 20) // in the middle of a list
		}
	})
	for _, k := range soakKinds {
		if s.ended[k.name].Load() == 0 {
			t.Errorf("no request ended as intended: %s", k.name)
		}
	}
	transport.CloseIdleConnections()
	awaitStock(t, cloud, before)

	hub.stop()
	transport.CloseIdleConnections()
	goleak.VerifyNone(t, running,
		// The cluster waits for the apiserver that was started again, and the
		// test's own client has a connection to it; the hub's are net/http's.
		goleak.IgnoreAnyFunction("os/exec.(*Cmd).Wait"),
		goleak.IgnoreAnyFunction("net/http/internal/http2.(*clientConnReadLoop).run"))
}

// soak makes requests of all kinds from several clients at once.
type soak struct {
	t      *testing.T
	url    string
	client *http.Client
	ended  map[string]*atomic.Int64 // requests by kind that ended as intended
}

// run makes n requests; at is called with the number of each hundredth one.
func (s *soak) run(n int, at func(int)) {
	var made atomic.Int64
	var g errgroup.Group
	for range soakClients {
		g.Go(func() error {
			for {
				i := int(made.Add(1))
				if i > n {
					return nil
				}
				if at != nil && i%100 == 0 {
					at(i)
				}
				k := soakKinds[rand.IntN(len(soakKinds))]
				if k.request(s.t.Context(), s) {
					s.ended[k.name].Add(1)
				}
			}
		})
	}
	_ = g.Wait() // no function returns an error
}

// get returns nil when the cloud is away.
func (s *soak) get(ctx context.Context, path string) *http.Response {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil
	}
	return res
}

// soakKinds are ways for a request to end. Each reports whether it did end so,
// which none does while the apiserver restarts.
var soakKinds = []struct {
	name    string
	request func(context.Context, *soak) bool
}{
	{"answered in full", func(ctx context.Context, s *soak) bool {
		res := s.get(ctx, configMaps+"/c-1")
		if res == nil {
			return false
		}
		defer res.Body.Close()
		_, err := io.Copy(io.Discard, res.Body)
		return err == nil && res.StatusCode == http.StatusOK
	}},
	{"404", func(ctx context.Context, s *soak) bool {
		res := s.get(ctx, configMaps+"/nobody")
		if res == nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusNotFound
	}},
	{"client leaves in the middle of a list", func(ctx context.Context, s *soak) bool {
		res := s.get(ctx, configMaps)
		if res == nil {
			return false
		}
		defer res.Body.Close()
		_, err := io.CopyN(io.Discard, res.Body, 100_000)
		return err == nil
	}},
	{"client leaves its watch", func(ctx context.Context, s *soak) bool {
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		res := s.get(ctx, configMaps+"?watch=true&resourceVersion=0")
		if res == nil {
			return false
		}
		defer res.Body.Close()
		_, err := io.CopyN(io.Discard, res.Body, 1000)
		return err == nil
	}},
	{"client leaves before the answer", func(ctx context.Context, s *soak) bool {
		ctx, leave := context.WithTimeout(ctx, time.Millisecond)
		defer leave()
		if res := s.get(ctx, configMaps); res != nil {
			res.Body.Close()
		}
		return ctx.Err() != nil
	}},
}

// stock is what could leak.
type stock struct {
	goroutines, connections int
	heap                    uint64
}

func takeStock(cloud *link.Link) stock {
	runtime.GC()
	runtime.GC() // pools keep what they have for one more collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return stock{runtime.NumGoroutine(), cloud.Established(), m.HeapAlloc}
}

// awaitStock waits until what is there now is what was there before, or little
// more.
func awaitStock(t *testing.T, cloud *link.Link, before stock) {
	t.Helper()
	var now stock
	if !poll.Within(2*time.Minute, func() bool {
		now = takeStock(cloud)
		return now.goroutines <= before.goroutines+extraGoroutines && now.heap <= before.heap+extraHeap && now.connections <= before.connections+extraConnections
	}) {
		stacks := make([]byte, 1<<20)
		t.Fatalf("before %+v, after %d requests %+v\n%s", before, soakRequests, now, stacks[:runtime.Stack(stacks, true)])
	}
	t.Logf("before %+v, after %+v", before, now)
}
