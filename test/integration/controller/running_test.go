package controller_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// running is a controller in this process.
type running struct {
	*recorder
	registry *prometheus.Registry
	c        *controller.Controller
	stop     func()
}

// start runs a controller with the default options.
func start(t *testing.T) *running {
	t.Helper()
	return startWith(t, controller.Options{})
}

// startWith runs a controller until stop or the end of the test, and then looks
// for goroutines that it left behind.
func startWith(t *testing.T, o controller.Options) *running {
	t.Helper()
	already := goleak.IgnoreCurrent()
	config := accountConfig()
	config.QPS = -1
	r := &running{recorder: &recorder{}, registry: prometheus.NewRegistry()}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		r.next = next
		return r.recorder
	})
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	o.Registerer, o.Logger = r.registry, slog.New(slog.NewTextHandler(t.Output(), nil))
	r.c, err = controller.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1) // one result
	go func() { ended <- r.c.Run(ctx) }()
	var once sync.Once // and no OnceFunc, which turns t.Fatal into a panic
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("run: %v", err)
			}
			checkNothingLeft(t, httpClient.Transport, already)
		})
	}
	t.Cleanup(r.stop)
	poll.Eventually(t, "the controller has seen every DaemonSet", r.c.Synced)
	return r
}

// checkNothingLeft closes connections again and again: one is idle only once the
// last answer on it has been read, which may be that to an Event.
func checkNothingLeft(t *testing.T, transport http.RoundTripper, already goleak.Option) {
	t.Helper()
	var left error
	defer func() {
		if left != nil {
			t.Errorf("the controller left something behind: %v", left)
		}
	}()
	poll.Eventually(t, "nothing of the controller runs any more", func() bool {
		utilnet.CloseIdleConnectionsFor(transport)
		utilnet.CloseIdleConnectionsFor(env.adminTransport)
		left = goleak.Find(already)
		return left == nil
	})
}

// metric is the value of a metric with these labels, and whether it is there.
func (r *running) metric(t *testing.T, name string, labels map[string]string) (float64, bool) {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	next:
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if want, ok := labels[label.GetName()]; ok && want != label.GetValue() {
					continue next
				}
			}
			return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
		}
	}
	return 0, false
}

// reconciles counts those that succeeded.
func (r *running) reconciles(t *testing.T) float64 {
	t.Helper()
	n, _ := r.metric(t, "edgehub_controller_reconciles_total", map[string]string{"result": "success"})
	return n
}

// lookAgain changes f, and waits until r has reconciled it once more. The value is new each time, also
// for a controller that counts from zero again: a patch that changes nothing wakes nobody.
func lookAgain(t *testing.T, r *running, f *fixture) {
	t.Helper()
	seen := r.reconciles(t)
	f.Patch(`{"metadata":{"labels":{"touched":"%d"}}}`, time.Now().UnixNano())
	poll.Eventually(t, "the DaemonSet was looked at again", func() bool { return r.reconciles(t) > seen })
}

// recorder keeps what a controller asks of the apiserver.
type recorder struct {
	next http.RoundTripper

	mu       sync.Mutex
	requests []request
}

type request struct {
	method, path string
	query        url.Values
	open         *atomic.Bool // until the body of the answer is closed
}

func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	seen := request{method: q.Method, path: q.URL.Path, query: q.URL.Query(), open: &atomic.Bool{}}
	seen.open.Store(true)
	r.mu.Lock()
	r.requests = append(r.requests, seen)
	r.mu.Unlock()
	response, err := r.next.RoundTrip(q)
	if err != nil {
		seen.open.Store(false)
		return nil, err
	}
	response.Body = &watchedBody{response.Body, seen.open}
	return response, nil
}

func (r *recorder) WrappedRoundTripper() http.RoundTripper { return r.next }

// of returns the requests with this method for paths that end so.
func (r *recorder) of(method, suffix string) []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []request
	for _, q := range r.requests {
		if q.method == method && strings.HasSuffix(q.path, suffix) {
			out = append(out, q)
		}
	}
	return out
}

// patches returns the patches of pods in a namespace.
func (r *recorder) patches(namespace string) []request {
	var out []request
	for _, q := range r.of(http.MethodPatch, "/status") {
		if strings.HasPrefix(q.path, "/api/v1/namespaces/"+namespace+"/pods/") {
			out = append(out, q)
		}
	}
	return out
}

// openWatches counts the watches of a resource in a namespace that are under way.
func (r *recorder) openWatches(namespace, resource string) int {
	n := 0
	for _, q := range r.of(http.MethodGet, "/namespaces/"+namespace+"/"+resource) {
		if q.query.Get("watch") == "true" && q.open.Load() {
			n++
		}
	}
	return n
}

// watchedBody signals when it is closed.
type watchedBody struct {
	io.ReadCloser
	open *atomic.Bool
}

func (b *watchedBody) Close() error {
	b.open.Store(false)
	return b.ReadCloser.Close()
}
