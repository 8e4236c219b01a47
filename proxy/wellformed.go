package proxy

import (
	"fmt"
	"net/http"
	"strings"
)

// malformed returns why r cannot reach an apiserver as it was sent, or nil. What
// net/http refuses by itself does not come as far.
func malformed(r *http.Request) error {
	isURL := r.URL.Scheme == "" || (r.URL.Scheme == "http" || r.URL.Scheme == "https") && r.URL.Host != ""
	if !isURL || r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/") { // GET a:/b, GET a:b, PRI *, CONNECT host
		return fmt.Errorf("%w: it is for %.200q, which is no path", errMalformed, r.RequestURI)
	}
	if r.Method == http.MethodConnect { // net/http would pass on the host alone
		return fmt.Errorf("%w: no apiserver knows the method CONNECT", errMalformed)
	}
	if !reproducible(r.URL) {
		return fmt.Errorf("%w: the path %.200q begins with two slashes and has bytes that have to be escaped: escape them", errMalformed, r.RequestURI)
	}
	for _, line := range r.Header["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			name := http.CanonicalHeaderKey(strings.TrimSpace(option))
			if _, sent := r.Header[name]; sent && saysWhoCalls(name) {
				return fmt.Errorf("%w: the header Connection has a proxy drop %.100s, which the apiserver has to see: leave it out there", errMalformed, name)
			}
		}
	}
	return nil
}

// saysWhoCalls reports whether a header, as http.CanonicalHeaderKey writes it,
// says on whose behalf a request is. Other headers that Connection names are
// dropped, as they have to be; without one of these it would be somebody else's
// request.
func saysWhoCalls(header string) bool {
	return header == "Authorization" || strings.HasPrefix(header, "Impersonate-") ||
		strings.HasPrefix(header, "X-Remote-") || strings.HasPrefix(header, "Sec-Websocket-")
}
