package registry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/time/rate"

	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
)

const (
	// handshakeTimeout allows for two or three round trips of 1.5 s each, as over a satellite, and
	// for the loss of the first packets.
	handshakeTimeout = 30 * time.Second
	// headerLimit bounds the header of an answer, in bytes. Real registries send some kB; net/http
	// would accept 10 MB.
	headerLimit = 256 << 10
	// retryAfterAtMost bounds Retry-After: a registry's broken clock must not stop pulls for days.
	retryAfterAtMost = time.Hour

	// One read takes at most a quarter of a second's bytes, to keep a bandwidth limit evenly. It
	// takes readAtLeast even if the limit is low, to save system calls, and never more than
	// readAtMost.
	readAtLeast = 4 << 10
	readAtMost  = 256 << 10
)

// NewLimiter returns a limiter for bandwidth bytes a second, or without a limit if that is 0.
func NewLimiter(bandwidth int64) *rate.Limiter {
	if bandwidth == 0 {
		return rate.NewLimiter(rate.Inf, readAtMost)
	}
	return rate.NewLimiter(rate.Limit(bandwidth), int(min(max(bandwidth/4, readAtLeast), readAtMost)))
}

// Transports are the HTTP transports of one pull, and the bounds that they share.
type Transports struct {
	limiter *rate.Limiter
	budget  *budget
	hosts   hosts
	fetched func(int)
	proxy   func(*http.Request) (*url.URL, error)

	mu     sync.Mutex
	opened []*http.Transport
}

// NewTransports returns the transports of one pull. End them with Close. window is how long a
// registry may send nothing before it counts as unreachable. proxy is as in http.Transport; nil is none.
func NewTransports(limiter *rate.Limiter, window time.Duration, fetched func(bytes int), proxy func(*http.Request) (*url.URL, error)) *Transports {
	return &Transports{limiter: limiter, budget: &budget{window: window}, fetched: fetched, proxy: proxy}
}

// adopt applies the bounds to a client. It ignores copies of clients that have them already.
func (w *Transports) adopt(client *http.Client) error {
	t, ok := client.Transport.(*http.Transport)
	if !ok {
		return nil
	}
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = handshakeTimeout, w.budget.window
	t.MaxResponseHeaderBytes, t.Proxy = headerLimit, w.proxy
	t.DialContext = w.hosts.guard(t.DialContext)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = append(w.opened, t)
	client.Transport = &transport{transports: w, next: t}
	return nil
}

// Close closes idle connections.
func (w *Transports) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.opened {
		t.CloseIdleConnections()
	}
}

// transport bounds, limits and counts what a registry sends.
type transport struct {
	transports *Transports
	next       http.RoundTripper
}

// RoundTrip fails with a *connError if there is no answer, and with a *busyError if the registry
// asks to come back later: containerd's client would retry at once, several times.
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

// retryAfter parses a number of seconds or a date. It returns 0 for anything else.
func retryAfter(header string, now time.Time) time.Duration {
	d := time.Duration(0)
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(header); err == nil {
		d = date.Sub(now)
	}
	return min(max(d, 0), retryAfterAtMost)
}

// connError is a failure of the network, before an answer or midway in one. Unlike its cause it has
// no method Timeout: containerd's client would wait five times for a registry that does not answer.
type connError struct {
	cause  error
	midway bool
}

func (e *connError) Error() string { return e.cause.Error() }
func (e *connError) Unwrap() error { return e.cause }

// busyError is an answer that asks the client to come back later.
type busyError struct {
	status string
	after  time.Duration
}

func (e *busyError) Error() string { return e.status }

// IsCut reports whether the connection broke within an answer.
func IsCut(err error) bool {
	w, ok := errors.AsType[*connError](err)
	_, stalled := errors.AsType[stall](err)
	return ok && w.midway && !stalled
}

// Truncated returns the error for an answer that ends before the blob is complete.
func Truncated() error { return &connError{cause: io.ErrUnexpectedEOF, midway: true} }
