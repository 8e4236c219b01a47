package registry

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// unexpectedResponse is an answer that is too large, or not what was requested. It shows nothing
// about the bytes of the blob that are on the node.
type unexpectedResponse struct{ what string }

func (e *unexpectedResponse) Error() string { return e.what }

// Contexts carry the blob that is being fetched: as fetchKey, also for requests for tokens, and as
// contentKey, only for requests whose answer is the blob.
type (
	fetchKey   struct{}
	contentKey struct{}
)

// WithBlob returns a context for requests that fetch this blob. Their answers are checked.
func WithBlob(ctx context.Context, blob ocispec.Descriptor) context.Context {
	return context.WithValue(ctx, fetchKey{}, blob)
}

// contentTransport is for requests to registries, and not for requests for tokens, which share the
// connections.
type contentTransport struct{ next http.RoundTripper }

// RoundTrip requests a blob without Content-Encoding: a compressed blob could not be resumed, and
// containerd's client would decompress zstd with a window of any size.
func (t contentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	blob, ok := r.Context().Value(fetchKey{}).(ocispec.Descriptor)
	if !ok {
		return t.next.RoundTrip(r)
	}
	r = r.Clone(context.WithValue(r.Context(), contentKey{}, blob))
	r.Header.Set("Accept-Encoding", "identity")
	return t.next.RoundTrip(r)
}

// checkContent fails if a successful response is not the requested part of the blob. A captive portal
// answers any request with a page.
func checkContent(r *http.Response, blob ocispec.Descriptor) error {
	switch encodings := r.Header.Values("Content-Encoding"); {
	case r.StatusCode >= http.StatusMultipleChoices:
		return nil
	case len(encodings) > 1 || len(encodings) == 1 && !slices.Contains([]string{"", "identity", "gzip", "deflate"}, encodings[0]):
		return unexpected(r, blob, "encoded as "+engineapi.Quote(strings.Join(encodings, ", ")))
	case r.StatusCode == http.StatusPartialContent:
		return checkRange(r, blob)
	case len(encodings) == 1:
		return nil // Content-Length is that of the encoded blob
	case r.ContentLength >= 0 && r.ContentLength != blob.Size:
		return unexpected(r, blob, engineapi.Amount(r.ContentLength))
	case r.ContentLength < 0 && isPage(r):
		return unexpected(r, blob, "a page of text")
	}
	return nil
}

// checkRange fails if a response has another part than the requested one.
func checkRange(r *http.Response, blob ocispec.Descriptor) error {
	start, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(r.Request.Header.Get("Range"), "bytes="), "-"), 10, 64)
	if err != nil {
		return unexpected(r, blob, "a part, and all was asked for")
	}
	var first, last int64
	var total string
	said := r.Header.Get("Content-Range")
	_, err = fmt.Sscanf(said, "bytes %d-%d/%s", &first, &last, &total)
	if err != nil || first != start || total != "*" && total != strconv.FormatInt(blob.Size, 10) {
		return unexpected(r, blob, "the part "+engineapi.Quote(said))
	}
	return nil
}

// isPage reports whether a response is meant for people.
func isPage(r *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "text/html"
}

func unexpected(r *http.Response, blob ocispec.Descriptor, what string) error {
	return &unexpectedResponse{fmt.Sprintf("it answers %d %s with something else than %s of %s: %s; look at what stands between here and the registry",
		r.StatusCode, http.StatusText(r.StatusCode), blob.Digest, engineapi.Amount(blob.Size), what)}
}
