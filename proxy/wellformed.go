package proxy

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// validate returns an error if r cannot be forwarded unchanged. Requests that net/http itself
// refuses do not get here.
func validate(r *http.Request) error {
	isURL := r.URL.Scheme == "" || (r.URL.Scheme == "http" || r.URL.Scheme == "https") && r.URL.Host != ""
	if !isURL || r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/") { // GET a:/b, GET a:b, PRI *, CONNECT host
		return fmt.Errorf("%w: it is for %.200q, which is no path", errInvalidRequest, r.RequestURI)
	}
	if r.Method == http.MethodConnect { // net/http would forward only the host
		return fmt.Errorf("%w: no apiserver knows the method CONNECT", errInvalidRequest)
	}
	if !upstream.HasExactPath(r.URL) {
		return fmt.Errorf("%w: the path %.200q begins with two slashes and has bytes that have to be escaped: escape them", errInvalidRequest, r.RequestURI)
	}
	for _, line := range r.Header["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			name := http.CanonicalHeaderKey(strings.TrimSpace(option))
			if _, sent := r.Header[name]; sent && isIdentityHeader(name) {
				return fmt.Errorf("%w: the header Connection has a proxy drop %.100s, which the apiserver has to see: leave it out there", errInvalidRequest, name)
			}
		}
	}
	return nil
}

// maxHeader bounds the header of a request, in bytes: its tokens and its path are kept in several places.
const maxHeader = 16 << 10

// checkSize returns an error if the header of r is larger than maxHeader, or than that without its query if r is an
// upgrade of a subresource: the URL of exec has the command, and nothing of it is kept. A server bounds that.
func (p *Proxy) checkSize(r *http.Request) error {
	size := len(r.Method) + len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			size += len(name) + len(value) + len(": \r\n")
		}
	}
	if size <= maxHeader {
		return nil
	}
	if size-len(r.URL.RawQuery) <= maxHeader && p.isUpgrade(r) {
		if info, err := p.requestInfo(r); err == nil && info.Subresource != "" {
			return nil
		}
	}
	return fmt.Errorf("%w: it has %d bytes, and may have %d; only the query of exec, attach and other upgrades may be larger", errHeaderTooLarge, size, maxHeader)
}

// isIdentityHeader reports whether a canonical header determines the user of a request. Headers
// that Connection names are dropped, as HTTP requires; without one of these the request would
// be that of another user.
func isIdentityHeader(header string) bool {
	return header == "Authorization" || strings.HasPrefix(header, "Impersonate-") ||
		strings.HasPrefix(header, "X-Remote-") || strings.HasPrefix(header, "Sec-Websocket-")
}
