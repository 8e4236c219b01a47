package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/limits"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// Proxy forwards requests to an upstream. Handler returns an http.Handler for each port.
type Proxy struct {
	forward  httputil.ReverseProxy
	watch    httputil.ReverseProxy // forward, with smaller buffers
	requests request.RequestInfoFactory
	metrics  *Metrics
	log      *slog.Logger

	bodyTimeout time.Duration
	bodies      *limits.Eviction // bodies of callers with credentials of their own
	writes      *limits.Eviction // responses to them
	refusals    *limits.Eviction // responses to those whose requests are not forwarded
	callers     *limits.Shares   // their requests in flight
	costs       *limits.Costs    // connections upstream that they have used up
	tenant      Tenant
	refused     func(context.Context)
	active      tracker
	draining    context.Context // ends when Drain is called
	drain       context.CancelFunc
}

// Tenant returns who shares the bound on requests of callers with credentials of their own: a
// tenant, empty while the caller is not identified, and one of its users. It is called when a request
// arrives and, if it has no tenant by then, when it is answered.
type Tenant func(*http.Request) (tenant, user string)

// New returns a Proxy that sends requests through upstream. refused is called, with a request's context,
// for each one that the proxy refuses by itself.
func New(upstream http.RoundTripper, tenant Tenant, refused func(context.Context), log *slog.Logger, m *Metrics) *Proxy {
	p := &Proxy{
		requests: request.RequestInfoFactory{
			APIPrefixes:          sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api"),
		},
		metrics:     m,
		log:         log,
		bodyTimeout: limits.BodyTimeout,
		bodies:      limits.NewEviction(limits.MaxBodies, 0),
		writes:      limits.NewEviction(limits.MaxUnread, limits.UnreadGrace),
		refusals:    limits.NewEviction(maxRefusals, 0),
		callers:     limits.NewShares(maxCallerRequests),
		costs:       limits.NewCosts(costsBurst, costsRate),
		tenant:      tenant,
		refused:     refused,
	}
	p.draining, p.drain = context.WithCancel(context.Background())
	p.forward = httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      upstream,
		ModifyResponse: p.modifyResponse,
		ErrorHandler:   p.handleError,
		BufferPool:     newCopyBuffers(copyBuffer),
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	p.watch = p.forward
	p.watch.BufferPool = newCopyBuffers(watchBuffer)
	return p
}

// Drain ends all watches cleanly, like an apiserver at their timeout: their clients resume them
// elsewhere, or here after a restart. Upgraded connections (exec, port-forward) and followed
// logs continue.
func (p *Proxy) Drain() { p.drain() }

// Wait returns nil once no requests are in flight, including upgraded connections, or ctx's
// error.
func (p *Proxy) Wait(ctx context.Context) error { return p.active.wait(ctx) }

// Handler serves a port whose callers are authenticated by authenticate.
func (p *Proxy) Handler(authenticate authn.Authenticator) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, end := limits.WithBodyTimeout(w, r, p.bodyTimeout)
		defer end()
		if err := p.checkSize(r); err != nil {
			p.reject(w, r, err)
			return
		}
		id, err := authenticate(r)
		if err != nil {
			p.reject(w, r, err)
			return
		}
		if err := validate(r); err != nil {
			p.reject(w, r, err)
			return
		}
		var share *limits.Share
		if id == authn.Caller { // its credentials are not verified yet
			var ok bool
			if share, ok = p.callers.Enter(p.tenant(r)); !ok {
				p.reject(w, r, errTooManyRequests)
				return
			}
			defer share.Leave()
			if !p.mayCost(r, share) {
				p.reject(w, r, errTooCostly)
				return
			}
			w = limits.NewResponseWriter(w, p.writes)
			defer limits.AddBody(r, p.bodies)()
		}
		p.serve(w, r.WithContext(authn.WithIdentity(r.Context(), id)), share)
	})
}

// serve forwards a request; share is nil for the node's.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, share *limits.Share) {
	p.active.begin()
	defer p.active.end()
	info, err := p.requestInfo(r)
	if err != nil { // an invalid path or query: the apiserver's own error is clearer
		info = &request.RequestInfo{Verb: "other"}
	}
	x := &forwarded{verb: info.Verb, began: time.Now(), share: share, upgrade: p.isUpgrade(r)}
	inFlight := p.metrics.inFlight.WithLabelValues(verbLabel(x.verb))
	inFlight.Inc()
	defer inFlight.Dec()
	defer func() { p.metrics.requests.WithLabelValues(verbLabel(x.verb), strconv.Itoa(x.code)).Inc() }()

	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), forwardedKey{}, x))
	defer cancel()
	if err == nil {
		ctx = request.WithRequestInfo(ctx, info)
	}
	if x.verb == "watch" {
		defer context.AfterFunc(p.draining, cancel)()
		if p.draining.Err() != nil {
			cancel() // AfterFunc may be too late for a quick response
		}
	}
	r = r.WithContext(ctx)
	if err := limits.BufferBody(r); errors.Is(err, limits.ErrBodyTimeout) {
		x.code = writeBodyTimeout(w)
		return
	} else if err != nil {
		panic(http.ErrAbortHandler) // the client has disconnected
	}
	suppressDefaults(w.Header())
	x.to = &responseWriter{ResponseWriter: w}
	if x.verb == "watch" {
		p.watch.ServeHTTP(x.to, r)
	} else {
		p.forward.ServeHTTP(x.to, r)
	}
}

// forwarded is one request and its response, for metrics and errors.
type forwarded struct {
	verb  string
	began time.Time
	code  int // of the response; 0 until there is one
	to    http.ResponseWriter
	share *limits.Share // nil for the node

	upgrade bool // the client asks for another protocol
}

type forwardedKey struct{}

func forwardedOf(r *http.Request) *forwarded {
	x, ok := r.Context().Value(forwardedKey{}).(*forwarded)
	if !ok {
		panic("proxy: a request that did not come through serve")
	}
	return x
}

// rewrite undoes the changes of httputil.ReverseProxy to a request.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
	if !forwardedOf(r.In).upgrade {
		r.Out.Header.Del("Upgrade")
		r.Out.Header.Del("Connection")
	}
}

// modifyResponse is called for each response before it is sent to the client.
func (p *Proxy) modifyResponse(res *http.Response) error {
	x := forwardedOf(res.Request)
	if err := p.identified(x, res.Request); err != nil {
		return err
	}
	p.charge(x, res)
	x.code = res.StatusCode
	p.metrics.seconds.WithLabelValues(verbLabel(x.verb)).Observe(time.Since(x.began).Seconds())
	if x.verb == "watch" && res.StatusCode == http.StatusOK {
		res.Body = &watchBody{ReadCloser: res.Body, draining: p.draining}
	} else if source, ok := res.Body.(io.WriterTo); ok && res.StatusCode == http.StatusOK && res.ContentLength >= 0 {
		res.Body = writingBody{res.Body, source, x.to}
	}
	return nil
}

// identified counts a request for its tenant if that is known only now, when an apiserver has
// answered. A read that exceeds the tenant's share fails; a write is done already.
func (p *Proxy) identified(x *forwarded, r *http.Request) error {
	if x.share == nil || x.share.Tenant() != "" {
		return nil
	}
	tenant, user := p.tenant(r)
	if tenant != "" && !x.share.Move(tenant, user) && r.Method == http.MethodGet {
		return errTooManyRequests
	}
	return nil
}

// handleError answers a request that got no response from upstream.
func (p *Proxy) handleError(w http.ResponseWriter, r *http.Request, err error) {
	x := forwardedOf(r)
	clear(w.Header())
	var unreachable *upstream.UnreachableError
	switch {
	case p.draining.Err() != nil && x.verb == "watch":
		x.code = http.StatusServiceUnavailable
		writeStatus(w, x.code, metav1.StatusReasonServiceUnavailable, "edgehub is shutting down; open the watch again")
	case errors.Is(err, limits.ErrBodyTimeout):
		x.code = writeBodyTimeout(w)
	case errors.Is(err, errTooManyRequests):
		p.refused(r.Context())
		x.code = http.StatusTooManyRequests
		writeStatus(w, x.code, metav1.StatusReasonTooManyRequests, "edgehub: "+err.Error())
	case r.Context().Err() != nil || errors.Is(err, upstream.ErrClientBody):
		panic(http.ErrAbortHandler)
	case !errors.As(err, &unreachable):
		x.code = http.StatusBadGateway
		p.log.Warn("request was not answered, though the apiserver can be reached", "method", r.Method, "path", r.URL.Path, "err", err)
		writeStatus(w, x.code, metav1.StatusReasonInternalError, fmt.Sprintf("edgehub: this request was not answered, though the apiserver can be reached; a write may have been carried out: %v", err))
	case unreachable.Delivered:
		x.code = http.StatusGatewayTimeout
		writeStatus(w, x.code, metav1.StatusReasonTimeout, fmt.Sprintf("edgehub: the connection to the cloud broke after the request was sent, so it may have been carried out; read the object before you try again: %v", err))
	default:
		x.code = http.StatusServiceUnavailable
		sendStatus(w, x.code, metav1.StatusReasonServiceUnavailable, "edgehub: "+unreachableText(err, unreachable), comesAgain(x.verb, unreachable.Since))
	}
}

// unreachableText is the message for a cloud that cannot be reached, or not by this node, with
// the context in which cause was wrapped.
func unreachableText(err error, cause *upstream.UnreachableError) string {
	text := "the cloud cannot be reached"
	if cause.Refused() {
		text = "the cloud does not let this node in"
	}
	switch said := err.Error(); {
	case strings.HasPrefix(said, text):
		return said
	case said == cause.Error():
		return text + ": " + said
	default:
		return text + ", and " + said
	}
}
