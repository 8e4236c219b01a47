package transform

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/proxy/topology"
)

// resend sends the objects of the pending Services.
//
// It lists what the watch is of, with the client's own credentials. An object that is newer
// than the position of the stream is left to the stream, which is about to bring it. So the
// client gets each as it is at that position, and can resume from there.
func (f *followed) resend() error {
	const most = 30 * time.Second
	ctx, cancel := context.WithTimeout(f.request.Context(), most)
	defer cancel()
	objects, err := f.list(ctx)
	if err != nil {
		return err
	}
	sent := len(f.buf)
	for _, bare := range objects {
		f.present(bare)
	}
	if len(f.buf) > sent {
		f.bookmark()
	}
	return nil
}

// present sends a listed object as the client has to read it now.
func (f *followed) present(bare []byte) {
	m, err := wire.Inspect(f.answer.encoding, bare)
	if err != nil {
		return // it was read before
	}
	if version, err := strconv.ParseUint(string(m.ResourceVersion), 10, 64); err != nil || version > f.position {
		return
	}
	out, err := f.answer.object(bare, &m)
	if err != nil {
		return // filters do not fail
	}
	name := nameOf(&m)
	had := !f.dropped[name]
	event := watch.Modified
	switch {
	case out.dropped && !had:
		return
	case out.dropped:
		f.dropped[name] = true
		event, out.bare = watch.Deleted, bare
	case !had:
		delete(f.dropped, name)
		event = watch.Added
	case f.resource == topology.Services && !f.unknown:
		return // nothing but whether it is read depends on the topology
	}
	f.buf = wire.AppendEvent(f.buf, f.answer.encoding, event, f.kind(), out.bare)
}

// list returns the objects of the pending Services, bare. They are at least as new as the
// stream. It asks for little if there are few, and for all that the client watches if that
// fails: offline, the cache has only that.
func (f *followed) list(ctx context.Context) ([][]byte, error) {
	const few = 10
	if f.resource == topology.Slices && len(f.pending) <= few {
		var names []string
		for service := range f.pending {
			names = append(names, service.Name)
		}
		if objects, err := f.listWhere(ctx, discoveryv1.LabelServiceName+" in ("+strings.Join(names, ",")+")"); err == nil {
			return objects, nil
		}
	}
	return f.listWhere(ctx, "")
}

// listWhere lists what the watch is of and a label selector selects.
func (f *followed) listWhere(ctx context.Context, selector string) ([][]byte, error) {
	res, err := f.answer.transport.next.RoundTrip(listRequest(ctx, f.request, selector, f.answer.encoding))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if encoding := wire.ParseContentType(res.Header.Get("Content-Type")).Encoding; res.StatusCode != http.StatusOK || encoding != f.answer.encoding {
		return nil, fmt.Errorf("the answer is %s, %s", res.Status, res.Header.Get("Content-Type"))
	}
	var objects [][]byte
	splitter, err := wire.NewSplitter(f.answer.encoding, func(item []byte, m *wire.Meta) error {
		if _, ok := f.pending[f.serviceOf(m)]; ok {
			objects = append(objects, bytes.Clone(item))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(splitter, res.Body); err != nil {
		return nil, err
	}
	meta, err := splitter.Close()
	if err != nil {
		return nil, err
	}
	if version, err := strconv.ParseUint(meta.ResourceVersion, 10, 64); err != nil || version < f.position {
		return nil, fmt.Errorf("the list is of version %q, older than the watch at %d", meta.ResourceVersion, f.position)
	}
	return objects, nil
}

// serviceOf returns the Service that an object belongs to.
func (f *followed) serviceOf(m *wire.Meta) types.NamespacedName {
	if f.resource == topology.Services {
		return nameOf(m)
	}
	return serviceOfSlice(m)
}

// listRequest returns the LIST of what a request watches and selector selects, too.
func listRequest(ctx context.Context, watching *http.Request, selector string, e wire.Encoding) *http.Request {
	info, _ := request.RequestInfoFrom(watching.Context())
	listing := *info
	listing.Verb = "list"
	listing.Path = strings.Replace(info.Path, "/watch/", "/", 1) // the older form of a watch
	r := watching.Clone(request.WithRequestInfo(ctx, &listing))
	r.URL.Path, r.URL.RawPath = strings.Replace(r.URL.Path, "/watch/", "/", 1), ""
	query := r.URL.Query()
	selectors := url.Values{}
	for _, key := range []string{"labelSelector", "fieldSelector"} {
		if v, ok := query[key]; ok {
			selectors[key] = v[:1] // an apiserver takes the first
		}
	}
	if selector != "" {
		selectors.Set("labelSelector", strings.TrimPrefix(selectors.Get("labelSelector")+","+selector, ","))
	}
	r.URL.RawQuery = selectors.Encode()
	r.RequestURI = ""
	r.Header.Set("Accept", e.MediaType())
	r.Header.Set("Accept-Encoding", "identity")
	return r
}
