// Package csrf rejects requests that web pages make in a browser on the node. A page of any
// website may send requests to the node's loopback: to its address or, by DNS rebinding, to a
// name of the website.
//
// [Check] checks one request, [Handler] all requests to a handler. They keep no state and are
// safe for concurrent use.
//
// The package is stricter than http.CrossOriginProtection, which ignores Host and passes every
// GET of a foreign page. On the hub, a GET can open a WebSocket to a container.
package csrf

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Check returns why r may come from a web page of another origin, as one line for the caller, or
// nil if it cannot.
func Check(r *http.Request) error {
	if !hostAllowed(r) {
		return fmt.Errorf("its Host is %.100q, which a website may have made mean this machine: call it by its IP address or as localhost", r.Host)
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "none" && site != "same-origin" {
			return fmt.Errorf("a browser sent it for a web page from elsewhere (Sec-Fetch-Site: %.50q): this is for programs on this machine", site)
		}
	}
	for _, origin := range r.Header["Origin"] {
		if !sameOrigin(r, origin) {
			return fmt.Errorf("a browser sent it for a web page of %.100q: this is for programs on this machine", origin)
		}
	}
	return nil
}

// hostAllowed reports whether the Host of r cannot be a website's name for this machine. A request
// without a Host, as in HTTP/1.0, comes from a program, since browsers always send one. 0.0.0.0 is
// not allowed: no program needs it, and for browsers it is another site, which Sec-Fetch-Site does
// not show.
//
// Over TLS a name is allowed if it is the one in the handshake: a browser has checked it against
// the certificate.
func hostAllowed(r *http.Request) bool {
	if r.Host == "" {
		return true
	}
	host, ok := hostOf(r.Host)
	if !ok {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.Unmap().IsUnspecified()
	}
	return isLocalhost(host) || (r.TLS != nil && strings.EqualFold(host, r.TLS.ServerName))
}

// isLocalhost ignores the case of ASCII letters only: for EqualFold, ſ equals s.
func isLocalhost(host string) bool {
	return len(host) == len("localhost") && strings.EqualFold(host, "localhost")
}

// hostOf returns hostPort without the port, which is optional, and without the brackets of an IPv6
// address.
func hostOf(hostPort string) (string, bool) {
	if host, port, err := net.SplitHostPort(hostPort); err == nil {
		return host, isPort(port) && strings.HasPrefix(hostPort, "[") == strings.Contains(host, ":")
	}
	if inner, ok := strings.CutPrefix(hostPort, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return inner, ok && strings.Contains(inner, ":")
	}
	return hostPort, !strings.Contains(hostPort, ":")
}

func isPort(s string) bool {
	return len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}

// sameOrigin reports whether origin is the address to which r was sent.
func sameOrigin(r *http.Request, origin string) bool {
	scheme, port := "http://", ":80"
	if r.TLS != nil {
		scheme, port = "https://", ":443"
	}
	host, ok := strings.CutPrefix(origin, scheme)
	return ok && host != "" && strings.EqualFold(strings.TrimSuffix(host, port), strings.TrimSuffix(r.Host, port))
}

// Handler passes requests that pass Check to next, and answers others with 403 and one line of text.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Check(r); err != nil {
			Refuse(w, http.StatusForbidden, err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Refuse answers a request with one line of text, and closes the connection, since the body was not
// read.
func Refuse(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Connection", "close")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, "refused: "+why+"\n") // fails if the caller is gone
}
