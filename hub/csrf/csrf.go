// Package csrf tells requests that web pages make, in a browser that runs on
// the node, from those of programs: a page of any website may send requests to
// the node's loopback, with the node's address or, by DNS rebinding, under a
// name of its own.
//
// [Check] looks at one request and [Handler] at all that a handler gets. They
// keep nothing and are safe for concurrent use.
//
// It is http.CrossOriginProtection made stricter: that lets every GET of a
// foreign page pass, and here a GET can open a WebSocket to a container; and it
// does not look at Host.
package csrf

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Check returns why r may come from a web page that is not the API's own, and
// nil if it cannot. It is one line for the caller.
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

// hostAllowed reports whether r's Host is none that DNS could lend a website. A
// browser sends a Host always, so that none at all, as in HTTP/1.0, is a
// program's. No program needs 0.0.0.0, which browsers take for a foreign address
// without saying so in Sec-Fetch-Site.
//
// Over TLS a name is good if the handshake was for it: a browser has checked it
// against the certificate then.
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

// isLocalhost is about ASCII: EqualFold alone takes ſ for an s.
func isLocalhost(host string) bool {
	return len(host) == len("localhost") && strings.EqualFold(host, "localhost")
}

// hostOf returns hostPort without its port, which may be left out, and without
// the brackets of an IPv6 address.
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

// sameOrigin reports whether origin is the address that r was sent to.
func sameOrigin(r *http.Request, origin string) bool {
	scheme, port := "http://", ":80"
	if r.TLS != nil {
		scheme, port = "https://", ":443"
	}
	host, ok := strings.CutPrefix(origin, scheme)
	return ok && host != "" && strings.EqualFold(strings.TrimSuffix(host, port), strings.TrimSuffix(r.Host, port))
}

// Handler answers requests that pass Check with next, and others with 403 and
// one line of text.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Check(r); err != nil {
			Refuse(w, http.StatusForbidden, err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Refuse answers a request that goes no further, in one line of text, and closes
// its connection: the body, if any, is not read.
func Refuse(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Connection", "close")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, "refused: "+why+"\n") // fails when the caller is gone
}
