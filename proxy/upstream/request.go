package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// rewindBody returns a request that sends req's body from its beginning. Attempts after the
// first happen only if nothing of the body was read, or GetBody can return it again.
func rewindBody(req *http.Request, attempt int) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, nil
	}
	out := *req
	if attempt > 0 && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		out.Body = body
		return &out, nil
	}
	out.Body = requestBody{req.Body}
	return &out, nil
}

// replayable reports whether a request that was not executed can be sent again: its body is
// still available.
func replayable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// idempotent reports whether sending req twice is the same as sending it once.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return req.Body == nil || req.Body == http.NoBody
	}
	return false
}

// ErrClientBody marks a failure to read a request's body from its client.
var ErrClientBody = errors.New("the client broke off its request body")

// requestBody is a request body on its way to one apiserver. A transport closes
// the body of a request that it could not send; the client's stays open for the
// next apiserver.
type requestBody struct{ io.Reader }

func (b requestBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrClientBody, err)
	}
	return n, err
}

func (requestBody) Close() error { return nil }

// exactPath returns u so that its path goes out byte for byte as it came in:
// URL.EscapedPath would escape what a client left as it is, such as {.
func exactPath(u *url.URL) *url.URL {
	if u.RawPath != "" && u.RawPath != u.EscapedPath() && HasExactPath(u) {
		out := *u
		out.Opaque = u.RawPath
		return &out
	}
	return u
}

// HasExactPath reports whether exactPath can send the path unchanged: to net/url, an opaque
// part with two slashes in front is a host.
func HasExactPath(u *url.URL) bool {
	return !strings.HasPrefix(u.RawPath, "//") || u.RawPath == u.EscapedPath()
}
