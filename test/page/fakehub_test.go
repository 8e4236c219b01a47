package page

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/page"
	"github.com/edgehub-io/edgehub/ota/webtoken"
	"github.com/edgehub-io/edgehub/test/internal/freeport"
)

// fakeHub answers as the node's API does, with what a test gives it, behind the page of the product.
type fakeHub struct {
	t       *testing.T
	address string
	server  *httptest.Server
	tokens  string // the file

	mu       sync.Mutex
	apps     []api.App
	node     api.NodeState
	events   []api.Event
	upgrades []api.Upgrade
	history  []api.Revision
	refuse   map[string]reply // by the request's method and last part of the path
	requests []string         // those that change something, with their query
	answered int              // those that are not of another website
	clock    time.Time        // of answers, and of the token that each browser gets; zero: as it is
}

type reply struct {
	code int
	line string
}

func newFakeHub(t *testing.T) *fakeHub {
	hub := &fakeHub{t: t, tokens: filepath.Join(t.TempDir(), "tokens.json"), refuse: map[string]reply{}, node: someNode()}
	hub.listen(freeport.Address(t)) // nobody else takes it while the hub is stopped
	t.Cleanup(func() { hub.stop() })
	return hub
}

func (f *fakeHub) listen(address string) {
	listener, err := new(net.ListenConfig).Listen(f.t.Context(), "tcp", address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.address = listener.Addr().String()
	f.server = httptest.NewUnstartedServer(csrf.Handler(f.counted(f.page().Wrap(f.handler()))))
	f.server.Listener.Close()
	f.server.Listener = listener
	f.server.Start()
}

func (f *fakeHub) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.update(func() { f.answered++ })
		if !f.clock.IsZero() {
			w.Header().Set("Date", f.clock.UTC().Format(http.TimeFormat))
		}
		if !f.clock.IsZero() && r.URL.Path == api.WebTokens {
			writeJSON(w, api.Token{Token: "t", Expires: f.clock.Add(12 * time.Hour)})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// stop ends the hub and its connections, as kill -9 does.
func (f *fakeHub) stop() {
	if f.server == nil {
		return
	}
	f.server.CloseClientConnections()
	f.server.Close()
	f.server = nil
}

func (f *fakeHub) start() { f.listen(f.address) }

func (f *fakeHub) url() string { return "http://" + f.address + "/" }

// link is what edgehubctl web prints.
func (f *fakeHub) link() string { return f.url() + "#code=" + f.code() }

// code is a one-time code, as a program gets it.
func (f *fakeHub) code() string {
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, "http://"+f.address+api.WebCodes, http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	var code api.Code
	if err := json.NewDecoder(answer.Body).Decode(&code); err != nil {
		f.t.Fatal(err)
	}
	return code.Code
}

// update changes what the hub has.
func (f *fakeHub) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// sent returns the requests that changed something, and forgets them.
func (f *fakeHub) sent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	requests := f.requests
	f.requests = nil
	return requests
}

// page is the page of what the hub has.
func (f *fakeHub) page() *page.Page {
	log := slog.New(slog.DiscardHandler)
	return page.New(page.Options{
		NodeName: "gate-17",
		Apps: func() api.AppList {
			f.mu.Lock()
			defer f.mu.Unlock()
			return api.AppList{Items: slices.Clone(f.apps)}
		},
		Node: func() api.NodeState {
			f.mu.Lock()
			defer f.mu.Unlock()
			node := f.node
			node.Certificates = slices.Clone(node.Certificates)
			return node
		},
		Events: func() api.EventList {
			f.mu.Lock()
			defer f.mu.Unlock()
			return api.EventList{Items: slices.Clone(f.events)}
		},
		Bundle: func(_ context.Context, w io.Writer) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.requests = append(f.requests, "GET bundle")
			_, err := io.WriteString(w, "a bundle")
			return err
		},
		Tokens:   webtoken.Open(f.tokens, func(time.Time) bool { return true }, log),
		Interval: 20 * time.Millisecond,
		Logger:   log,
	})
}

func (f *fakeHub) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.Healthz, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "OK") })
	mux.HandleFunc("GET "+api.Upgrades, func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		writeJSON(w, api.UpgradeList{Items: f.upgrades})
	})
	mux.HandleFunc("GET /openyurt.io/v1/namespaces/{namespace}/pods/{pod}/history", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		writeJSON(w, api.History{Items: f.history})
	})
	mux.HandleFunc("POST /openyurt.io/", f.change)
	mux.HandleFunc("DELETE /openyurt.io/", f.change)
	return mux
}

// change answers what changes something.
func (f *fakeHub) change(w http.ResponseWriter, r *http.Request) {
	action := r.Method + " " + r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), "/openyurt.io/v1/"))
	answer, refused := f.refuse[action]
	f.mu.Unlock()
	switch {
	case refused && answer.code >= 400:
		http.Error(w, answer.line, answer.code)
	case refused:
		w.WriteHeader(answer.code)
		fmt.Fprintln(w, answer.line)
	default:
		fmt.Fprintln(w, "Start updating pod default/camera-x2x9z")
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
