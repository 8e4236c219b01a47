package identity

import (
	"net/http"
	"strings"
)

// Bearer returns the bearer token by which an apiserver authenticates the sender
// of a request, or "" where that is not certain to be one. It reads the header
// like k8s.io/apiserver/pkg/authentication/request/bearertoken: blanks around it
// do not count, what follows the token is ignored, and a second blank before the
// token makes it none.
//
// There must be one Authorization header. Apiservers read the first of several,
// but whatever stands between here and there may pick another one.
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

// Ambiguous reports whether a request carries anything besides Authorization and
// the connection's certificate that may decide as whom an apiserver answers it: a
// token in a WebSocket subprotocol, impersonation, or the headers of an
// authenticating proxy. Whose the answer is cannot be known then.
func Ambiguous(h http.Header) bool {
	for name := range h {
		if name == "Sec-Websocket-Protocol" || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			return true
		}
	}
	return false
}
