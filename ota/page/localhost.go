package page

import (
	"cmp"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/edgehub-io/edgehub/ota/webtoken"
)

// asLocalhost reports whether a browser calls the hub localhost. That is [::1] as well, where anybody on the node may
// listen: pages of theirs would be of the same origin. Over TLS they have no certificate.
func asLocalhost(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return r.TLS == nil && len(host) == len("localhost") && strings.EqualFold(host, "localhost") && webtoken.FromBrowser(r)
}

// toAddress sends a browser that opens a page to 127.0.0.1, at the port that it knows, which may be one that ssh
// forwards. A script gets no answer.
func toAddress(w http.ResponseWriter, r *http.Request) {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "80"
	}
	to := url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", port), Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Connection", "close")                                     // the body is not read
	opens := cmp.Or(r.Header.Get("Sec-Fetch-Mode"), "navigate") == "navigate" // older browsers do not say it
	if opens && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		http.Redirect(w, r, to.String(), http.StatusTemporaryRedirect)
		return
	}
	http.Error(w, "localhost may be somebody else's page: open "+to.Scheme+"://"+to.Host+"/", http.StatusForbidden)
}
