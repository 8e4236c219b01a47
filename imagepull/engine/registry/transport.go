package registry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/time/rate"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
)

const (
	// A handshake takes two or three round trips; a satellite's is 1.5 s, and the first
	// packets may be lost.
	handshakeTimeout = 30 * time.Second
	// headerLimit bounds the header of an answer in bytes. Those of real registries have
	// some kB; net/http would take 10 MB.
	headerLimit = 256 << 10
	// leaveAloneAtMost bounds what a registry may ask for: a broken clock in its
	// Retry-After must not end pulls for days.
	leaveAloneAtMost = time.Hour
)

// Transports is what the connections of one pull have in common.
type Transports struct {
	limiter *rate.Limiter
	budget  *budget
	hosts   hosts
	fetched func(int)
	agent   string // or empty

	mu     sync.Mutex
	opened []*http.Transport
}

// NewTransports returns those of one pull, which ends with Close. limiter may be nil, and
// window is after how long without a byte a registry counts as unreachable.
func NewTransports(limiter *rate.Limiter, window time.Duration, fetched func(bytes int), agent string) *Transports {
	return &Transports{limiter: limiter, budget: &budget{window: window}, fetched: fetched, agent: agent}
}

// adopt applies the bounds to a client. It is called again for copies of clients, some of
// which have them already.
func (w *Transports) adopt(client *http.Client) error {
	t, ok := client.Transport.(*http.Transport)
	if !ok {
		return nil
	}
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = handshakeTimeout, w.budget.window
	t.MaxResponseHeaderBytes = headerLimit
	t.DialContext = w.hosts.guard(t.DialContext)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = append(w.opened, t)
	client.Transport = &transport{transports: w, next: t}
	return nil
}

// Close ends the connections that are idle.
func (w *Transports) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.opened {
		t.CloseIdleConnections()
	}
}

// transport bounds, limits and counts what comes in, and notices when nothing does.
type transport struct {
	transports *Transports
	next       http.RoundTripper
}

// RoundTrip fails with a *connError where there is no answer, and with a *busyError
// where the registry asks to be left alone: containerd's client would ask again at
// once, several times.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	response, err := t.transports.budget.roundTrip(t.next, t.transports.hosts.mark(request.WithContext(ctx), t.next), cancel)
	if err != nil {
		cancel(nil)
		return nil, &connError{cause: err}
	}
	if isBusy(response) {
		_ = response.Body.Close()
		cancel(nil)
		return nil, &busyError{status: response.Status, after: retryAfter(response.Header.Get("Retry-After"), time.Now())}
	}
	limit := int64(imagecontent.DocumentLimit)
	if blob, ok := ctx.Value(contentKey{}).(ocispec.Descriptor); ok {
		limit = blob.Size
		if err := checkContent(response, blob); err != nil {
			_ = response.Body.Close()
			cancel(nil)
			return nil, err
		}
	}
	response.Body = &body{ReadCloser: response.Body, ctx: ctx, cancel: cancel, transports: t.transports, left: limit, limit: limit}
	return response, nil
}

func isBusy(r *http.Response) bool {
	return r.StatusCode == http.StatusTooManyRequests ||
		r.StatusCode == http.StatusServiceUnavailable && r.Header.Get("Retry-After") != ""
}

// retryAfter reads a number of seconds or a date; 0 is neither.
func retryAfter(header string, now time.Time) time.Duration {
	d := time.Duration(0)
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(header); err == nil {
		d = date.Sub(now)
	}
	return min(max(d, 0), leaveAloneAtMost)
}

// connError is a failure of the network, before an answer or midway in one. Unlike
// what it wraps it has no method Timeout: containerd's client would wait for a
// registry that does not answer five times over.
type connError struct {
	cause  error
	midway bool
}

func (e *connError) Error() string { return e.cause.Error() }
func (e *connError) Unwrap() error { return e.cause }

// busyError is an answer that asks to come back later.
type busyError struct {
	status string
	after  time.Duration
}

func (e *busyError) Error() string { return e.status }

// IsCut reports whether a connection broke that worked until then.
func IsCut(err error) bool {
	w, ok := errors.AsType[*connError](err)
	_, stalled := errors.AsType[stall](err)
	return ok && w.midway && !stalled
}

// Truncated is the error of an answer that ended before all of the blob had come.
func Truncated() error { return &connError{cause: io.ErrUnexpectedEOF, midway: true} }
