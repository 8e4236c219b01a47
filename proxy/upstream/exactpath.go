package upstream

import (
	"net/url"
	"strings"
)

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
