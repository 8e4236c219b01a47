package transform

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// maxBody bounds the body of a GET or LIST, in bytes, decompressed.
const maxBody = 64 << 20

// Options of a Transport.
type Options struct {
	// IsNode reports whether a request carries the node's identity. Required.
	IsNode func(context.Context) bool
	// Transforms are applied in this order.
	Transforms []Transform
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
	transforms := t.matching(r.Context())
	res, err := t.next.RoundTrip(r)
	if err != nil || len(transforms) == 0 || res.StatusCode != http.StatusOK {
		return res, err
	}
	info, _ := request.RequestInfoFrom(r.Context())
	a := &answer{transport: t, transforms: transforms, encoding: negotiation.ParseContentType(res.Header.Get("Content-Type")).Encoding}
	if info.Verb == "watch" {
		err = a.watch(res)
	} else {
		err = a.whole(res)
	}
	if err != nil {
		t.opts.Logger.Error("an answer cannot be transformed: the node's client gets a 500", "path", r.URL.Path, "err", err)
		res.Body.Close()
		return failure(r, err), nil
	}
	return res, nil
}

// matching returns the transforms for what a request reads.
func (t *Transport) matching(ctx context.Context) []*Transform {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest || info.APIGroup != "" || info.APIVersion != "v1" || info.Subresource != "" ||
		!slices.Contains([]string{"get", "list", "watch"}, info.Verb) || !t.opts.IsNode(ctx) {
		return nil
	}
	var found []*Transform
	for i := range t.opts.Transforms {
		f := &t.opts.Transforms[i]
		if f.Resource == info.Resource && overlap(f.Namespace, info.Namespace) && overlap(f.ObjectName, info.Name) {
			found = append(found, f)
		}
	}
	return found
}

// overlap reports whether two names, of which an empty one is any, may be the same.
func overlap(a, b string) bool { return a == "" || b == "" || a == b }

// answer is one answer that is transformed.
type answer struct {
	transport  *Transport
	transforms []*Transform
	encoding   wire.Encoding
}

// whole transforms the answer to a GET or LIST.
func (a *answer) whole(res *http.Response) error {
	body, err := readBody(res)
	if err != nil {
		return err
	}
	res.Body.Close()
	edited, err := a.body(body)
	if err != nil {
		return err
	}
	res.Body = io.NopCloser(bytes.NewReader(edited))
	res.ContentLength = int64(len(edited))
	res.Header.Set("Content-Length", strconv.Itoa(len(edited)))
	return nil
}

// readBody reads a body to its end and undoes its compression.
func readBody(res *http.Response) ([]byte, error) {
	var in io.Reader = res.Body
	switch e := res.Header.Get("Content-Encoding"); e {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("read an answer: %w", err)
		}
		in = z
		res.Header.Del("Content-Encoding")
	default:
		return nil, fmt.Errorf("an answer in the encoding %q", e)
	}
	body, err := io.ReadAll(io.LimitReader(in, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("larger than %d MiB", maxBody>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("read an answer: %w", err)
	}
	return body, nil
}

func (a *answer) body(body []byte) ([]byte, error) {
	whole, err := wire.Inspect(a.encoding, body)
	if err != nil {
		return nil, err
	}
	switch kind := string(whole.Kind); {
	case slices.Contains(kinds, kind):
		bare, err := wire.AppendBare(nil, a.encoding, body)
		if err != nil {
			return nil, err
		}
		edited, changed, err := a.object(bare, &whole)
		if err != nil || !changed {
			return body, err
		}
		return wire.AppendBody(nil, a.encoding, whole.TypeMeta(), edited), nil
	case slices.Contains(kinds, strings.TrimSuffix(kind, "List")):
		return a.list(body)
	}
	return body, nil // a Table, or metadata
}

// kinds are the objects that transforms are for.
var kinds = []string{"Service", "ConfigMap"}

// list transforms the items of a list.
func (a *answer) list(body []byte) ([]byte, error) {
	var items [][]byte
	var sizes wire.ItemSizes
	anyChanged := false
	splitter, err := wire.NewSplitter(a.encoding, 0, func(item []byte, m *wire.Meta) error {
		edited, changed, err := a.object(item, m)
		if err != nil {
			return err
		}
		if !changed {
			edited = bytes.Clone(item)
		}
		anyChanged = anyChanged || changed
		items = append(items, edited)
		sizes.Add(len(edited))
		return nil
	})
	if err != nil {
		return nil, err
	}
	_, _ = splitter.Write(body) // tells its error in Close
	meta, err := splitter.Close()
	if err != nil || !anyChanged {
		return body, err
	}
	var out bytes.Buffer
	w, err := wire.NewListWriter(&out, a.encoding, meta, sizes)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if err := w.WriteItem(item); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// object applies the transforms that are for this object, bare.
func (a *answer) object(bare []byte, m *wire.Meta) (edited []byte, changed bool, err error) {
	for _, f := range a.transforms {
		if string(m.Name) != f.ObjectName || !overlap(f.Namespace, string(m.Namespace)) {
			continue
		}
		if bare, err = f.apply(a.encoding, bare); err != nil {
			a.transport.metrics.failed(f)
			return nil, false, fmt.Errorf("transform %s of %s/%s: %w", f.Name, m.Namespace, m.Name, err)
		}
		a.transport.metrics.applied(f)
		changed = true
	}
	return bare, changed, nil
}

// failure is the answer in place of one that could not be transformed.
func failure(r *http.Request, cause error) *http.Response {
	status := statusOf(cause)
	body, _ := json.Marshal(status) // of strings and a number
	return &http.Response{
		Status: "500 Internal Server Error", StatusCode: http.StatusInternalServerError,
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

