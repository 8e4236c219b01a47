package identity

import (
	"net/http"
	"strings"
)

// Bearer returns the bearer token by which an apiserver authenticates a request, or "" if
// that is not certain. It parses the header like
// k8s.io/apiserver/pkg/authentication/request/bearertoken: surrounding blanks and anything
// after the token are ignored, and a second blank before the token makes it invalid.
//
// There must be exactly one Authorization header. Apiservers use the first of several, but
// a proxy on the way may choose another one.
func Bearer(h http.Header) string {
	values := h["Authorization"]
	if len(values) != 1 {
		return ""
	}
	scheme, rest, ok := strings.Cut(strings.TrimSpace(values[0]), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	token, _, _ := strings.Cut(rest, " ")
	return token
}

// Authenticated reports whether a status code shows that an apiserver has authenticated the
// client. Other codes must not cause a review: a client without a valid token can provoke
// them.
func Authenticated(code int) bool {
	switch code {
	case http.StatusNotModified, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	return code/100 == 2
}

// Ambiguous reports whether a request carries anything besides Authorization and the
// connection's certificate that may determine its user: a token in a WebSocket subprotocol,
// impersonation, or the headers of an authenticating proxy. The user of the answer is then
// unknown.
func Ambiguous(h http.Header) bool {
	for name := range h {
		if name == "Sec-Websocket-Protocol" || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			return true
		}
	}
	return false
}
