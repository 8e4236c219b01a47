package rolloutenv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/controller"
)

// Controller is a controller that runs in this process.
type Controller struct {
	Registry *prometheus.Registry

	cancel  context.CancelFunc
	ended   chan error // one result
	dead    atomic.Bool
	lag     atomic.Int64 // nanoseconds
	refused atomic.Int64
	once    sync.Once
	result  error
	guard   *Guard
	next    http.RoundTripper

	mu     sync.Mutex
	calls  map[string]int // by verb and resource; guarded by mu
	answer Answer         // guarded by mu
}

// Answer returns what is answered to a request to delete a pod, in place of the apiserver
// and as an admission webhook would; nil lets the request pass.
type Answer func(namespace, pod string) *apierrors.StatusError

var errKilled = errors.New("the controller was killed")

// StartController runs one until Stop, Kill or the end of the test. guard may be
// nil.
func (s *Env) StartController(t testing.TB, o controller.Options, guard *Guard) *Controller {
	t.Helper()
	c := &Controller{Registry: prometheus.NewRegistry(), ended: make(chan error, 1), guard: guard, calls: map[string]int{}}
	config := s.AccountConfig()
	// A transport of its own, since the next controller must not take over its
	// connections.
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { c.next = next; return c })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	o.Registerer = c.Registry
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	run, err := controller.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go func() { c.ended <- run.Run(ctx) }()
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("run the controller: %v", err)
		}
	})
	return c
}

// Stop ends the controller in an orderly way, and waits for it.
func (c *Controller) Stop() error {
	c.once.Do(func() {
		c.cancel()
		c.result = <-c.ended
	})
	return c.result
}

// Kill ends it as SIGKILL would: nothing more is sent from this moment on, and what
// is under way may or may not be done.
func (c *Controller) Kill() {
	c.dead.Store(true)
	c.cancel()
}

// Refused is how many deletions the apiserver refused because of a precondition.
func (c *Controller) Refused() int { return int(c.refused.Load()) }

// Refuse answers requests to delete pods from now on; nil lets all of them pass.
func (c *Controller) Refuse(a Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = a
}

func (c *Controller) refusal(namespace, pod string) *apierrors.StatusError {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answer == nil {
		return nil
	}
	return c.answer(namespace, pod)
}

// Calls returns how many requests there were, by verb and resource, such as
// "DELETE pods".
func (c *Controller) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

// Lag delays the events of watches from now on, as a busy apiserver does. Answers to writes
// are not delayed.
func (c *Controller) Lag(by time.Duration) { c.lag.Store(int64(by)) }

// RoundTrip counts, lets the guard look at deletions, and delays watches.
func (c *Controller) RoundTrip(q *http.Request) (*http.Response, error) {
	if c.dead.Load() {
		return nil, errKilled
	}
	c.count(q)
	if watches(q) {
		response, err := c.next.RoundTrip(q)
		if err == nil {
			response.Body = newSlowBody(response.Body, &c.lag)
		}
		return response, err
	}
	namespace, pod, ok := deletesPod(q)
	if ok {
		if refused := c.refusal(namespace, pod); refused != nil {
			return respond(q, refused)
		}
	}
	if !ok || c.guard == nil {
		return c.next.RoundTrip(q)
	}
	response, err := c.guard.watch(namespace, pod, &c.dead, func() (*http.Response, error) { return c.next.RoundTrip(q) })
	if err == nil && response.StatusCode == http.StatusConflict {
		c.refused.Add(1)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport.
func (c *Controller) WrappedRoundTripper() http.RoundTripper { return c.next }

func respond(q *http.Request, e *apierrors.StatusError) (*http.Response, error) {
	status := e.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: int(status.Code), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: q,
	}, nil
}

func watches(q *http.Request) bool { return q.URL.Query().Get("watch") == "true" }

func (c *Controller) count(q *http.Request) {
	what := q.Method
	if watches(q) {
		what = "WATCH"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[what+" "+resourceOf(q.URL.Path)]++
}
