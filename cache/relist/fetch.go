package relist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// withValuesOf returns a context that ends with ctx, and has the values of a request, which may
// have ended.
func withValuesOf(ctx context.Context, request *http.Request) (context.Context, context.CancelFunc) {
	merged, cancel := context.WithCancel(context.WithoutCancel(request.Context()))
	stop := context.AfterFunc(ctx, cancel)
	return merged, func() {
		stop()
		cancel()
	}
}

// fetch lists the view of a Builder from upstream.
func (l *Lister) fetch(ctx context.Context, b *view.Builder, template *http.Request) error {
	res, err := l.list(ctx, b.View, template, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	d := tee.NewDecoder(b.View.Repr, res, b)
	_, err = io.Copy(tee.Strict{Decoder: d}, res.Body)
	if err != nil && d.Failed == nil {
		return fmt.Errorf("list: %w", errors.Join(err, d.Stop(err)))
	}
	if err := d.Finish(); err != nil {
		return fmt.Errorf("list: %w: %w", errUnfit, err)
	}
	if b.Meta.Continue != "" || !versions.Valid(b.Meta.ResourceVersion) {
		return fmt.Errorf("list: %w: the answer is a page at version %q, where all was asked for", errUnfit, b.Meta.ResourceVersion)
	}
	return nil
}

// list requests all of a view from upstream, in its representation and with the credentials
// of template.
func (l *Lister) list(ctx context.Context, v *view.View, template *http.Request, more url.Values) (*http.Response, error) {
	req := template.Clone(ctx)
	req.Body, req.GetBody = nil, nil
	params := url.Values{}
	if v.Key.Labels != "" {
		params.Set("labelSelector", v.Key.Labels)
	}
	if v.Key.Fields != "" {
		params.Set("fieldSelector", v.Key.Fields)
	}
	maps.Copy(params, more)
	req.URL.RawQuery = params.Encode()
	req.Header.Set("Accept", AcceptOf(v.Repr))
	req.Header.Set("Accept-Encoding", "gzip") // the link may be slow
	res, err := l.Up.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	if identity.Authenticated(res.StatusCode) {
		if err := l.SameUser(v.Key.User, req); err != nil {
			res.Body.Close()
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		if res.StatusCode == http.StatusForbidden {
			l.Views.Deny(&v.Key)
		}
		return nil, &refusal{res.StatusCode}
	}
	if got := negotiation.Answered(req.Header.Get("Accept"), res.Header.Get("Content-Type")); got != v.Repr {
		res.Body.Close()
		return nil, fmt.Errorf("list: %w: the apiserver answered in %q, not %s", errUnfit, res.Header.Get("Content-Type"), v.Repr)
	}
	return res, nil
}

// ListMeta reads the metadata of a list, and ignores its items.
type ListMeta struct{ wire.ListMeta }

// Item does nothing. See tee.ItemHandler.
func (*ListMeta) Item([]byte, *wire.Meta) error { return nil }

// List sets the metadata.
func (l *ListMeta) List(m wire.ListMeta) error {
	l.ListMeta = m
	return nil
}

// refusal is a status code other than 200.
type refusal struct{ code int }

func (r *refusal) Error() string {
	return fmt.Sprintf("list: the apiserver answered %d %s", r.code, http.StatusText(r.code))
}

// IsFinal reports whether err is a refusal that retries do not change.
func IsFinal(err error) bool {
	if errors.Is(err, identity.ErrReassigned) {
		return true
	}
	r, ok := errors.AsType[*refusal](err)
	return ok && r.code < http.StatusInternalServerError && r.code != http.StatusTooManyRequests
}

// AcceptOf returns the Accept header for lists in a representation.
func AcceptOf(r negotiation.Representation) string {
	if r.Metadata == "" {
		return r.Encoding.MediaType()
	}
	return r.Encoding.MediaType() + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=" + r.Metadata
}
