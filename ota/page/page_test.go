package page

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/webtoken"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is what a page shows.
type node struct {
	mu     sync.Mutex
	apps   []api.App
	online bool
	reads  int // of apps
	bundle func(context.Context, io.Writer) error
}

func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *node) readers() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reads
}

// page returns the page of n.
func (n *node) page(t *testing.T) *Page {
	log := slog.New(slog.DiscardHandler)
	return New(Options{
		NodeName: "n1",
		Apps: func() api.AppList {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.reads++
			return api.AppList{Items: n.apps}
		},
		Node: func() api.NodeState {
			n.mu.Lock()
			defer n.mu.Unlock()
			return api.NodeState{Node: "n1", Time: time.Now(), Online: n.online}
		},
		Events: func() api.EventList { return api.EventList{Items: []api.Event{}} },
		Bundle: func(ctx context.Context, w io.Writer) error { return n.bundle(ctx, w) },
		Tokens: webtoken.Open(filepath.Join(t.TempDir(), "tokens.json"), func(time.Time) bool { return true }, log),
		Logger: log,
	})
}

// serve returns the URL of the page of n, with an API behind it that answers "API".
func (n *node) serve(t *testing.T) (string, *Page) {
	p := n.page(t)
	server := httptest.NewServer(p.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "API ", r.Method, " ", r.URL.EscapedPath())
	})))
	t.Cleanup(server.Close)
	t.Cleanup(p.Drain)
	return server.URL, p
}

// do sends a request whose headers are names and values in turn.
func do(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(content)
}

func TestTheFilesAreServed(t *testing.T) {
	url, _ := (&node{}).serve(t)
	for path, contentType := range map[string]string{
		"/": "text/html; charset=utf-8", "/page/index.html": "text/html; charset=utf-8", "/page/app.css": "text/css; charset=utf-8",
		"/page/app.js": "text/javascript; charset=utf-8", "/page/dom.js": "text/javascript; charset=utf-8", "/page/text.js": "text/javascript; charset=utf-8",
		"/page/view.js": "text/javascript; charset=utf-8", "/page/icon.svg": "image/svg+xml",
	} {
		res, body := do(t, http.MethodGet, url+path, "")
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != contentType || body == "" || res.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %d %q, %d bytes", path, res.StatusCode, res.Header.Get("Content-Type"), len(body))
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
		} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if again, body := do(t, http.MethodGet, url+path, "", "If-None-Match", res.Header.Get("ETag")); again.StatusCode != http.StatusNotModified || body != "" {
			t.Errorf("%s, which the browser has: %d, %d bytes", path, again.StatusCode, len(body))
		}
		if head, body := do(t, http.MethodHead, url+path, ""); head.StatusCode != http.StatusOK || body != "" {
			t.Errorf("HEAD %s: %d", path, head.StatusCode)
		}
	}
}

// Whoever listens on [::1] has pages of the origin localhost: no browser gets anything there, and programs get all.
func TestABrowserIsSentFromLocalhostToTheAddress(t *testing.T) {
	address, _ := (&node{}).serve(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	const chromium, old, script = "Sec-Fetch-Mode: navigate", "User-Agent: Mozilla/5.0 (old)", "Sec-Fetch-Mode: cors"
	for _, tt := range []struct {
		method, host, path, header string
		want                       int
	}{
		{"GET", "localhost:8080", "/?a=%2F", chromium, http.StatusTemporaryRedirect},
		{"GET", "LocalHost:8080", "/", old, http.StatusTemporaryRedirect},
		{"GET", "localhost:8080", "/", script, http.StatusForbidden},
		{"GET", "localhost:8080", api.Apps, script, http.StatusForbidden},
		{"GET", "localhost:8080", api.Stream, script, http.StatusForbidden},
		{"POST", "localhost:8080", api.WebTokens, script, http.StatusForbidden},
		{"POST", "localhost:8080", api.WebTokens, old, http.StatusForbidden},
		{"POST", "localhost:8080", "/openyurt.io/v1/namespaces/d/pods/p/upgrade", chromium, http.StatusForbidden},
		{"GET", "localhost:8080", "/pods", "User-Agent: curl/8.5.0", http.StatusOK},
		{"GET", "localhost", "/metrics", "User-Agent: Prometheus/3.0.0", http.StatusOK},
		{"GET", "127.0.0.1:8080", "/", chromium, http.StatusOK},
		{"GET", "[::1]:8080", "/", chromium, http.StatusOK},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, address+tt.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(tt.header, ": ")
		r.Header.Set(name, value)
		r.Host = tt.host
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		to := ""
		if tt.want == http.StatusTemporaryRedirect {
			to = "http://127.0.0.1:8080" + tt.path
		}
		if err != nil || res.StatusCode != tt.want || res.Header.Get("Location") != to || tt.want == http.StatusForbidden && !strings.Contains(string(body), "open http://127.0.0.1:8080/") {
			t.Errorf("%s http://%s%s, %s: %d to %q: %s", tt.method, tt.host, tt.path, tt.header, res.StatusCode, res.Header.Get("Location"), body)
		}
	}
}

func TestOtherPathsAreTheAPIs(t *testing.T) {
	url, _ := (&node{}).serve(t)
	for _, path := range []string{"/pods", "//", "//pods", "/page", "/page/", "/page/none.js", "/page/../pods", "/%70age/app.js", "/openyurt.io/v1/apps/", "/openyurt.io/v1/upgrades"} {
		if _, body := do(t, http.MethodGet, url+path, ""); body != "API GET "+path {
			t.Errorf("%s: %q", path, body)
		}
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	url, _ := (&node{}).serve(t)
	for path, want := range map[string]string{
		api.Page: "GET, HEAD", api.Apps: "GET, HEAD", api.Stream: "GET", api.Bundle: "GET", api.WebCodes: "POST", api.WebTokens: "POST",
	} {
		res, body := do(t, http.MethodPut, url+path, "")
		if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != want || !strings.HasSuffix(body, "use "+want+"\n") {
			t.Errorf("PUT %s: %d %q %q", path, res.StatusCode, res.Header.Get("Allow"), body)
		}
	}
}

func TestStateIsServedAsJSON(t *testing.T) {
	n := &node{online: true, apps: []api.App{{Pod: "camera"}}}
	url, _ := n.serve(t)
	for path, want := range map[string]string{api.Apps: `"pod":"camera"`, api.Node: `"online":true`, api.Events: `{"items":[]}`} {
		res, body := do(t, http.MethodGet, url+path, "", "Sec-Fetch-Site", "same-origin")
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
}

// A browser goes the whole way: code, token, and a change behind the page.
func TestABrowserMayChangeSomethingOnceItHasAToken(t *testing.T) {
	url, _ := (&node{}).serve(t)
	const upgrade = "/openyurt.io/v1/namespaces/d/pods/p/upgrade"
	if res, _ := do(t, http.MethodPost, url+upgrade, "", "Origin", url); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d", res.StatusCode)
	}
	if _, body := do(t, http.MethodPost, url+upgrade, ""); body != "API POST "+upgrade {
		t.Errorf("a program: %q", body)
	}
	if res, _ := do(t, http.MethodPost, url+api.WebCodes, "", "Origin", url); res.StatusCode != http.StatusForbidden {
		t.Errorf("a browser that asks for a code: %d", res.StatusCode)
	}
	_, code := do(t, http.MethodPost, url+api.WebCodes, "")
	res, body := do(t, http.MethodPost, url+api.WebTokens, code, "Origin", url)
	var token api.Token
	if err := json.Unmarshal([]byte(body), &token); err != nil || res.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("the token: %s %v", body, res.Header)
	}
	if _, body := do(t, http.MethodPost, url+upgrade, "", "Origin", url, api.TokenHeader, token.Token); body != "API POST "+upgrade {
		t.Errorf("with the token: %q", body)
	}
}

// reader is a tab that follows the stream.
type reader struct {
	t      *testing.T
	status int
	lines  *bufio.Scanner
}

func follow(t *testing.T, client *http.Client, url string) *reader {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+api.Stream, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return &reader{t, res.StatusCode, bufio.NewScanner(res.Body)}
}

// next returns the next event as "name: data", or "" once the stream has ended.
func (r *reader) next() string {
	name := ""
	for r.lines.Scan() {
		line := r.lines.Text()
		if after, ok := strings.CutPrefix(line, "event: "); ok {
			name = after
		}
		if after, ok := strings.CutPrefix(line, "data: "); ok {
			return name + ": " + after
		}
	}
	return ""
}

func (r *reader) wants(want ...string) {
	r.t.Helper()
	for _, one := range want {
		if got := r.next(); !strings.HasPrefix(got, one) {
			r.t.Errorf("got %q, want %q", got, one)
		}
	}
}

// inBubble serves the page of n over connections in memory, so that time is synctest's.
func (n *node) inBubble(t *testing.T) (*http.Client, *Page) {
	p := n.page(t)
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: p.Wrap(http.NotFoundHandler())}
	go func() { _ = server.Serve(l) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		l.conns <- theirs
		return ours, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return &http.Client{Transport: transport}, p
}

// pipes is a listener of connections in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestTheStreamSendsAllAtFirstAndThenWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		client, _ := n.inBubble(t)
		tab := follow(t, client, "http://n1")
		tab.wants(`apps: {"items":null}`, `node: {"node":"n1"`, `events: {"items":[]}`)
		begin := time.Now()
		n.set(func() { n.apps = []api.App{{Pod: "camera"}} })
		tab.wants(`apps: {"items":[{"namespace":"","pod":"camera"`)
		n.set(func() { n.online = true })
		tab.wants(`node: {"node":"n1"`)
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("two changes took %v to arrive, want a second each", took)
		}
	})
}

func TestAQuickSeriesOfChangesIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		client, _ := n.inBubble(t)
		tab := follow(t, client, "http://n1")
		tab.wants("apps", "node", "events")
		go func() {
			for i := range 100 {
				n.set(func() { n.apps = []api.App{{Pod: "camera", Restarts: int32(i)}} })
				time.Sleep(50 * time.Millisecond)
			}
		}()
		begin, events, last := time.Now(), 0, ""
		for !strings.Contains(last, `"restarts":99`) {
			if last = tab.next(); last == "" {
				t.Fatal("the stream has ended")
			}
			events++
		}
		if seconds := time.Since(begin).Seconds(); float64(events) > seconds+1 {
			t.Errorf("%d events in %v s, want one a second at most", events, seconds)
		}
	})
}

func TestSourcesAreReadOnceForAllTabsAndNotWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		client, _ := n.inBubble(t)
		time.Sleep(time.Hour)
		if reads := n.readers(); reads > 0 {
			t.Errorf("%d reads while nobody looks", reads)
		}
		ctx, leave := context.WithCancel(t.Context())
		for range maxStreams {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://n1"+api.Stream, http.NoBody)
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, res.Body); res.Body.Close() }()
		}
		before := n.readers()
		time.Sleep(time.Minute)
		if reads := n.readers() - before; reads < 59 || reads > 121 {
			t.Errorf("%d reads in a minute for %d tabs, want one or two a second", reads, maxStreams)
		}
		leave()
		synctest.Wait()
		before = n.readers()
		time.Sleep(time.Hour)
		if reads := n.readers() - before; reads > 0 {
			t.Errorf("%d reads after all have left", reads)
		}
	})
}

func TestThereAreOnlySoManyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := (&node{}).inBubble(t)
		for range maxStreams {
			follow(t, client, "http://n1")
		}
		if tab := follow(t, client, "http://n1"); tab.status != http.StatusServiceUnavailable {
			t.Errorf("one too many: %d", tab.status)
		}
		// Tabs that take nothing lose their place.
		time.Sleep(2 * writeTimeout)
		if tab := follow(t, client, "http://n1"); tab.status != http.StatusOK {
			t.Errorf("after the others have read nothing for %v: %d", 2*writeTimeout, tab.status)
		}
	})
}

func TestAQuietStreamIsKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := (&node{}).inBubble(t)
		tab := follow(t, client, "http://n1")
		tab.wants("apps", "node", "events")
		begin := time.Now()
		for tab.lines.Scan() && tab.lines.Text() != ":" {
		}
		if took := time.Since(begin); took < quiet || took > quiet+2*time.Second {
			t.Errorf("the first comment came after %v, want %v", took, quiet)
		}
	})
}

func TestStreamsEndWhenTheHubStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, p := (&node{}).inBubble(t)
		tab := follow(t, client, "http://n1")
		tab.wants("apps", "node", "events")
		p.Drain()
		p.Drain()
		if got := tab.next(); got != "" {
			t.Errorf("got %q, want the end", got)
		}
	})
}

func TestABundleIsAnAttachment(t *testing.T) {
	n := &node{bundle: func(_ context.Context, w io.Writer) error { _, err := io.WriteString(w, "a bundle"); return err }}
	url, _ := n.serve(t)
	res, body := do(t, http.MethodGet, url+api.Bundle, "")
	if name := res.Header.Get("Content-Disposition"); body != "a bundle" || !strings.HasPrefix(name, "attachment; filename=edgehub-n1-2") || !strings.HasSuffix(name, "Z.tar.gz") {
		t.Errorf("got %q, %q", body, name)
	}
	if res, _ := do(t, http.MethodGet, url+api.Bundle, "", "Sec-Fetch-Site", "same-origin"); res.StatusCode != http.StatusUnauthorized || res.Header.Get("Content-Disposition") != "" {
		t.Errorf("a browser without a token: %d", res.StatusCode)
	}
}

func TestABundleThatFailsIsNotTakenForAWholeOne(t *testing.T) {
	n := &node{bundle: func(context.Context, io.Writer) error { return errors.New("no\nspace") }}
	url, _ := n.serve(t)
	if res, body := do(t, http.MethodGet, url+api.Bundle, ""); res.StatusCode != http.StatusInternalServerError || body != "write a support bundle: no space\n" || res.Header.Get("Content-Disposition") != "" {
		t.Errorf("at once: %d %q", res.StatusCode, body)
	}
	n.bundle = func(_ context.Context, w io.Writer) error {
		return errors.Join(func() error { _, err := w.Write(bytes.Repeat([]byte("x"), 1<<16)); return err }(), errors.New("no space"))
	}
	res, err := http.Get(url + api.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Errorf("on the way: %d bytes, and no error", n)
	}
}

func TestOneBundleIsWrittenAtATime(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	n := &node{bundle: func(context.Context, io.Writer) error { began <- struct{}{}; <-end; return nil }}
	url, _ := n.serve(t)
	first := make(chan int)
	go func() {
		res, err := http.Get(url + api.Bundle)
		if err != nil {
			first <- 0
			return
		}
		res.Body.Close()
		first <- res.StatusCode
	}()
	<-began
	if res, _ := do(t, http.MethodGet, url+api.Bundle, ""); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the second: %d", res.StatusCode)
	}
	close(end)
	if status := <-first; status != http.StatusOK {
		t.Errorf("the first: %d", status)
	}
}
