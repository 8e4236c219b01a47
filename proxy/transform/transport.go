package transform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/proxy/topology"
)

// Options of a Transport.
type Options struct {
	// IsNode reports whether a request carries the node's identity. Required.
	IsNode func(context.Context) bool
	// Account returns the service account, as namespace/name, that the bearer token in a request's header claims
	// to be of, or "". Required with a filter of Services.
	Account func(http.Header) string
	// Transforms are applied in this order.
	Transforms []Transform
	// Topology is what filters of Services decide by. Required with one.
	Topology *topology.State
	// Registerer registers the metrics. Required.
	Registerer prometheus.Registerer
	// Logger is required.
	Logger *slog.Logger
}

// Transport is an http.RoundTripper that transforms the answers of another one.
type Transport struct {
	next    http.RoundTripper
	opts    Options
	metrics *metrics
}

// New returns a Transport. Requests must carry a request.RequestInfo.
func New(next http.RoundTripper, o Options) *Transport {
	return &Transport{next: next, opts: o, metrics: newMetrics(o.Registerer, o.Transforms)}
}

// RoundTrip transforms the answer if the request reads objects that a Transform is for.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	a := &answer{transport: t, transforms: t.matching(r)}
	res, err := t.next.RoundTrip(r)
	if err != nil || len(a.transforms) == 0 || res.StatusCode != http.StatusOK {
		return res, err
	}
	if a.filters() { // not before the token, whose claim has chosen them, was accepted
		t.await(r.Context())
		_, a.generation, _ = t.opts.Topology.Changes(topology.Slices, 0)
	}
	a.encoding = wire.ParseContentType(res.Header.Get("Content-Type")).Encoding
	info, _ := request.RequestInfoFrom(r.Context())
	switch {
	case a.pods() != nil && a.encoding == 0 && a.idle():
		// It cannot be read, and need not be: there is nothing to change.
	case info.Verb != "watch":
		err = a.whole(res)
	case a.filters():
		err = a.follow(r, res)
	case a.pods() != nil && isOfNode(r):
		err = a.followPods(r, res)
	default:
		err = a.watch(res)
	}
	if errors.Is(err, errDropped) {
		res.Body.Close()
		return notFound(r, info), nil
	}
	if err != nil {
		t.opts.Logger.Error("an answer cannot be transformed: the node's client gets a 500", "path", r.URL.Path, "err", err)
		res.Body.Close()
		return failure(r, err), nil
	}
	return res, nil
}

// await gives the topology some time to be known. Who reads without it gets the rest in its
// watch later.
func (t *Transport) await(ctx context.Context) {
	const most = 5 * time.Second // in the cloud's worst hour; from the cache it takes milliseconds
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_ = t.opts.Topology.Await(ctx)
}

// matching returns the transforms for what a request reads.
func (t *Transport) matching(r *http.Request) []*Transform {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest || info.APIVersion != "v1" || info.Subresource != "" ||
		!slices.Contains([]string{"get", "list", "watch"}, info.Verb) {
		return nil
	}
	var found []*Transform
	for i := range t.opts.Transforms {
		f := &t.opts.Transforms[i]
		if f.Resource == info.Resource && f.Group == info.APIGroup &&
			overlap(f.Namespace, info.Namespace) && overlap(f.ObjectName, info.Name) && t.isReader(f, r) {
			found = append(found, f)
		}
	}
	return found
}

// isReader reports whether a transform is for the caller of a request.
func (t *Transport) isReader(f *Transform, r *http.Request) bool {
	if isNode := t.opts.IsNode(r.Context()); isNode || f.filter == nil {
		return isNode && f.filter == nil && (f.reader == nil || f.reader(r.Header))
	}
	return slices.Contains(f.filter.accounts, t.opts.Account(r.Header))
}

// overlap reports whether two names, of which an empty one is any, may be the same.
func overlap(a, b string) bool { return a == "" || b == "" || a == b }

// answer is one answer that is transformed.
type answer struct {
	transport  *Transport
	transforms []*Transform
	encoding   wire.Encoding
	generation uint64 // of the topology, before the first object is decided
}

// filters reports whether the transforms are filters: those of a caller are, or are not.
func (a *answer) filters() bool { return a.transforms[0].filter != nil }

// object applies the transforms that are for this object, bare.
func (a *answer) object(bare []byte, m *wire.Meta) (result, error) {
	out := result{bare: bare}
	for _, f := range a.transforms {
		if !overlap(f.ObjectName, string(m.Name)) || !overlap(f.Namespace, string(m.Namespace)) {
			continue
		}
		next, err := f.apply(&object{encoding: a.encoding, bare: out.bare, meta: m})
		if err != nil {
			a.transport.metrics.failed(f)
			err = fmt.Errorf("transform %s of %s/%s: %w", f.Name, m.Namespace, m.Name, err)
			if f.filter == nil {
				return result{}, err
			}
			a.passed("err", err)
			continue
		}
		if next.changed || next.dropped {
			a.transport.metrics.applied(f)
		}
		if next.dropped {
			return next, nil
		}
		out = result{bare: next.bare, changed: out.changed || next.changed}
	}
	return out, nil
}

// passed logs that something has passed a filter that was to be filtered.
func (a *answer) passed(args ...any) {
	a.transport.opts.Logger.Error("what cannot be filtered passes unchanged", args...)
}

// failure is the answer in place of one that could not be transformed.
func failure(r *http.Request, cause error) *http.Response {
	status := statusOf(cause)
	return statusAnswer(r, &status)
}

// notFound is the answer to a GET of an object that is dropped.
func notFound(r *http.Request, info *request.RequestInfo) *http.Response {
	status := apierrors.NewNotFound(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name).ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return statusAnswer(r, &status)
}

func statusAnswer(r *http.Request, status *metav1.Status) *http.Response {
	body, _ := json.Marshal(status) // of strings and numbers
	code := int(status.Code)
	return &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header:        http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"no-cache, private"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
}

func statusOf(cause error) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Reason:   metav1.StatusReasonInternalError,
		Message:  fmt.Sprintf("edgehub cannot change this answer for the node: %v; --transforms turns a transform off", cause),
		Code:     http.StatusInternalServerError,
	}
}
