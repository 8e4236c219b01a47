// Package page serves the owner's page of a node, and what it shows: apps, the node's state and its last
// Events as JSON and as a stream, and a support bundle.
//
// [AppSources] lists the apps. [Page.Wrap] answers the paths of the page and passes all others to the node's API. In front of both stands
// [webtoken]: what a browser sends to change something needs a token. Reading needs none; who may reach the
// API, and that no other website does, is for the caller to check before.
//
// The page reads its sources only while somebody looks: nothing runs otherwise.
package page

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/params"
	"github.com/edgehub-io/edgehub/ota/webtoken"
)

// Options are what a page shows. All but Interval are required, and the functions must be safe for
// concurrent use.
type Options struct {
	NodeName string
	Apps     func() api.AppList
	Node     func() api.NodeState
	Events   func() api.EventList
	// Bundle writes a support bundle, as tar.gz.
	Bundle func(context.Context, io.Writer) error
	Tokens *webtoken.Tokens
	// Interval is how often the stream looks for changes; 0 is a second.
	Interval time.Duration
	Logger   *slog.Logger
}

// Page is the owner's page. It is safe for concurrent use.
type Page struct {
	Options
	routes  map[string]methods // by path
	latest  latest
	streams chan struct{} // has an element for each stream
	bundles chan struct{} // has an element while a bundle is written
	drained chan struct{} // closed by Drain
	drain   sync.Once
}

// methods are the handlers of a path by method.
type methods map[string]http.Handler

// New returns a page. It starts nothing.
func New(o Options) *Page {
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	p := &Page{Options: o, streams: make(chan struct{}, maxStreams), bundles: make(chan struct{}, 1), drained: make(chan struct{})}
	p.routes = map[string]methods{
		api.Apps:      reads(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.Apps()) }),
		api.Node:      reads(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.Node()) }),
		api.Events:    reads(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.Events()) }),
		api.Stream:    {http.MethodGet: http.HandlerFunc(p.stream)},
		api.Bundle:    {http.MethodGet: p.Tokens.Require(http.HandlerFunc(p.bundle))},
		api.WebCodes:  {http.MethodPost: http.HandlerFunc(p.Tokens.NewCode)},
		api.WebTokens: {http.MethodPost: http.HandlerFunc(p.Tokens.Exchange)},
	}
	for _, route := range p.routes {
		for method, h := range route {
			route[method] = withoutQuery(h)
		}
	}
	for path, file := range files() {
		p.routes[path] = reads(file.ServeHTTP)
	}
	return p
}

// reads are the methods of what is only read.
func reads(h http.HandlerFunc) methods {
	return methods{http.MethodGet: h, http.MethodHead: h}
}

// withoutQuery refuses query parameters, as the rest of the API does: there are none. What a browser opens, the page
// itself and its files, may have some.
func withoutQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := params.Parse(r.URL.RawQuery); err != nil {
			w.Header().Set("Connection", "close") // the body is not read
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Wrap answers the page's own paths, as they were sent, neither cleaned nor decoded, and passes all other
// requests to next, if they may change what they change. Browsers that call the hub localhost get none of it. No browser runs, or shows in a frame, what either answers.
func (p *Page) Wrap(next http.Handler) http.Handler {
	next = p.Tokens.Guard(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		if asLocalhost(r) {
			toAddress(w, r)
			return
		}
		route, ok := p.routes[r.URL.EscapedPath()]
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		h, ok := route[r.Method]
		if !ok {
			route.notAllowed(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// secure sets what keeps a browser from running, loading or framing anything that is not the page's own.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers without frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
}

func (m methods) notAllowed(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		if m[method] != nil {
			allowed = append(allowed, method)
		}
	}
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	w.Header().Set("Connection", "close") // the body is not read
	http.Error(w, fmt.Sprintf("method %.20q is not for %s: use %s", r.Method, r.URL.Path, list), http.StatusMethodNotAllowed)
}

func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n')) // fails when the caller is gone
}
