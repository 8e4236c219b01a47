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

// isIdentityHeader reports whether a canonical header determines the user of a request. Headers
// that Connection names are dropped, as HTTP requires; without one of these the request would
// be that of another user.
func isIdentityHeader(header string) bool {
	return header == "Authorization" || strings.HasPrefix(header, "Impersonate-") ||
		strings.HasPrefix(header, "X-Remote-") || strings.HasPrefix(header, "Sec-Websocket-")
}
