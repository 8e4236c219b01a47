package hub

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/hub/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logs is what hubs log, whose connections may fail after they have ended.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// node has everything that a hub under test needs: an apiserver, a kubeconfig and its own ports.
type node struct {
	config *config.Config
	api    *httptest.Server
	dir    string
	logs   logs

	// uids are those of the Service of the apiserver and of the Node; with none, both are 403.
	uids atomic.Pointer[[2]string]
}

// identify answers the hub's question which cluster this is.
func (n *node) identify(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	uids, which := n.uids.Load(), 0
	if strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") {
		which = 1
	}
	switch {
	case uids == nil, strings.Contains(r.URL.Path, "/configmaps/"):
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","reason":"Forbidden"}`)
	case uids[which] == "":
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","reason":"NotFound"}`)
	default:
		fmt.Fprintf(w, `{"metadata":{"name":%q,"uid":%q}}`, path.Base(r.URL.Path), uids[which])
	}
}

func newNode(t *testing.T, handler http.HandlerFunc) *node {
	t.Helper()
	n := &node{dir: t.TempDir()}
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.UserAgent() == "edgehub/test" && r.URL.Path == "/api/v1/pods" && (q.Has("watch") || q.Has("resourceVersion")) {
			http.NotFound(w, r) // the hub follows the node's pods, and these clouds expect nobody but the test
			return
		}
		if r.UserAgent() == "edgehub" {
			n.identify(w, r) // the hub asks which cluster this is, and for the keys of signed bundles
			return
		}
		handler(w, r)
	}))
	api.EnableHTTP2 = true
	api.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	api.StartTLS()
	t.Cleanup(api.Close)
	n.api = api
	n.write(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}))
	n.write(t, "token", []byte("first-token\n"))
	n.write(t, "kubeconfig", fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: ca.crt}}]
users: [{name: u, user: {tokenFile: token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, api.URL))
	var err error
	o := config.NewOptions()
	o.NodeName, o.Kubeconfig, o.RootDir = "n1", n.path("kubeconfig"), n.path("root")
	o.ServePort, o.ProxyPort, o.ProxySecurePort = freePort(t), freePort(t), freePort(t)
	o.RuntimeEndpoint = "" // these clouds expect nobody but the test
	n.config, err = o.Config()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(n.path(name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (n *node) hub() (*Hub, error) {
	return New(n.config, "edgehub/test", prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&n.logs, nil)))
}

// start runs a hub until the test ends, or until stop is called, which returns the result of Run.
func (n *node) start(t *testing.T) (*Hub, func() error) {
	t.Helper()
	h, err := n.hub()
	if err != nil {
		t.Fatal(err)
	}
	return h, n.run(t, h)
}

// run is like start, for an existing hub.
func (n *node) run(t *testing.T, h *Hub) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return stop
}

// sendTo sends a request, whose headers are names and values in turn.
func sendTo(t *testing.T, client *http.Client, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host")
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(content)
}

func fetch(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	return sendTo(t, client, http.MethodGet, url, "")
}

// ask sends a request to the node's API.
func (n *node) ask(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	return sendTo(t, http.DefaultClient, method, "http://"+n.config.ServeAddress+path, body, headers...)
}

// askCloud sends a GET to the plain proxy port.
func (n *node) askCloud(t *testing.T, path string) (int, string) {
	t.Helper()
	return fetch(t, http.DefaultClient, "http://"+n.config.ProxyAddress+path)
}

// until waits until what another goroutine does has made holds true.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2 minutes: %s", what)
		}
	}
}

// loseCloud ends the apiserver, and waits until the hub knows.
func (n *node) loseCloud(t *testing.T, h *Hub) {
	t.Helper()
	closed := make(chan struct{})
	go func() { n.api.Close(); close(closed) }()
	until(t, "the apiserver has ended", func() bool {
		n.api.CloseClientConnections() // also those that the hub makes meanwhile: Close waits for a watch
		select {
		case <-closed:
			return true
		default:
			return false
		}
	})
	n.awaitOffline(t, h)
}

func (n *node) awaitOffline(t *testing.T, h *Hub) {
	t.Helper()
	until(t, "the hub knows that the cloud is away", func() bool {
		n.askCloud(t, "/version")
		return h.cloud.offline() != ""
	})
}

func echoToken(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, r.Header.Get("Authorization"))
}

func TestHubServesAllPorts(t *testing.T) {
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/pods" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"p","namespace":"d"},"spec":{"nodeName":%q}}]}`,
				strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName="))
			return
		}
		echoToken(w, r)
	})
	n.start(t)

	if code, body := n.askCloud(t, "/version"); code != 200 || body != "Bearer first-token" {
		t.Errorf("10261: %d %q, want the node's token to be lent", code, body)
	}
	for path, want := range map[string]string{
		"/v1/healthz": "OK", "/v1/readyz": "OK", "/metrics": "edgehub_upstream_up", "/pods": `"nodeName":"n1"`,
	} {
		if code, body := n.ask(t, http.MethodGet, path, ""); code != 200 || !strings.Contains(body, want) {
			t.Errorf("10267%s: %d %q, want 200 with %q", path, code, body, want)
		}
	}
}

func TestSecurePortRequiresCredentials(t *testing.T) {
	n := newNode(t, echoToken)
	n.start(t)
	client, url := n.clientOf(t, nil), "https://"+n.config.SecureAddress+"/api"
	if code, body := fetch(t, client, url); code != http.StatusUnauthorized || !strings.Contains(body, `"kind":"Status"`) {
		t.Errorf("a stranger got %d %s", code, body)
	}
	if code, body := sendTo(t, client, http.MethodGet, url, "", "Authorization", "Bearer mine"); code != http.StatusOK || body != "Bearer mine" {
		t.Errorf("a caller with a token got %d %s", code, body)
	}
}

func TestRotatedTokenFileIsReloaded(t *testing.T) {
	n := newNode(t, echoToken)
	h, _ := n.start(t)
	n.write(t, "token", []byte("second-token\n"))
	h.cloud.creds.Reload()
	if _, body := n.askCloud(t, "/api"); body != "Bearer second-token" {
		t.Errorf("after the rotation the apiserver sees %q", body)
	}
	n.write(t, "token", nil) // in the middle of being written
	h.cloud.creds.Reload()
	if _, body := n.askCloud(t, "/api"); body != "Bearer second-token" {
		t.Errorf("while the file is empty the apiserver sees %q", body)
	}
}

func TestStartNeedsNoCloud(t *testing.T) {
	n := newNode(t, echoToken)
	n.api.Close()
	n.start(t)
	if code, body := n.ask(t, http.MethodGet, "/v1/readyz", ""); code != 200 {
		t.Errorf("readyz without cloud: %d %s", code, body)
	}
	if code, _ := n.askCloud(t, "/api"); code != 503 {
		t.Errorf("proxy without cloud: %d, want 503", code)
	}
	if code, body := n.ask(t, http.MethodGet, "/pods", ""); code != 503 || strings.Count(body, "\n") > 1 {
		t.Errorf("/pods without cloud: %d %q, want 503 and one line", code, body)
	}
}

func TestStopEndsWatchesAndWaitsForRequests(t *testing.T) {
	release := make(chan struct{})
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begin ")
		http.NewResponseController(w).Flush()
		if r.URL.Query().Get("watch") != "" {
			<-r.Context().Done()
			return
		}
		<-release
		io.WriteString(w, "end")
	})
	_, stop := n.start(t)
	url := "http://" + n.config.ProxyAddress + "/api/v1/pods"
	late, err := net.Dial("tcp", n.config.ProxyAddress) // is accepted before the next
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	list, watch := begin(t, url), begin(t, url+"?watch=true")

	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	for err == nil {
		var conn net.Conn
		if conn, err = net.Dial("tcp", n.config.ProxyAddress); err == nil {
			conn.Close()
		}
	}
	if _, err := io.WriteString(late, "GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(watch); len(rest) > 0 || err != nil {
		t.Errorf("the watch ended with %q, %v", rest, err)
	}
	close(release)
	if rest, err := io.ReadAll(list); string(rest) != "end" || err != nil {
		t.Errorf("the list under way ended with %q, %v", rest, err)
	}
	if res, err := http.ReadResponse(bufio.NewReader(late), nil); err != nil {
		t.Errorf("who had connected and sent its request when the hub stopped got %v", err)
	} else if body, err := io.ReadAll(res.Body); string(body) != "begin end" || err != nil {
		t.Errorf("who had connected got %s, %q, %v", res.Status, body, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// begin reads "begin " from the body of url, and returns the rest of the body.
func begin(t *testing.T, url string) io.Reader {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if _, err := io.ReadFull(res.Body, make([]byte, len("begin "))); err != nil {
		t.Fatal(err)
	}
	return res.Body
}

func TestStopCutsWhatOutlivesTheGracePeriod(t *testing.T) {
	arrived := make(chan struct{})
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	n.config.ShutdownGrace = time.Millisecond
	_, stop := n.start(t)
	failed := make(chan error, 1)
	go func() {
		res, err := http.Get("http://" + n.config.ProxyAddress + "/api/v1/pods")
		if err == nil {
			res.Body.Close()
		}
		failed <- err
	}()
	<-arrived
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("the request was answered, though nothing had come from upstream")
	}
	if !strings.Contains(n.logs.String(), "--shutdown-grace-period") {
		t.Errorf("the log does not say why requests were cut:\n%s", n.logs.String())
	}
}

func TestStopLetsAnUpgradeOnTheNodesAPIEnd(t *testing.T) {
	listing, release := make(chan struct{}), make(chan struct{})
	deleted := false
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodDelete {
			deleted = true
			io.WriteString(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"d"}}`)
			return
		}
		close(listing)
		<-release
		io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"p","namespace":"d","uid":"u",
			"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"ds","uid":"x","controller":true}]},
			"spec":{"nodeName":"n1"},"status":{"conditions":[{"type":"PodNeedUpgrade","status":"True","message":"controllerrevision: abc"}]}}]}`)
	})
	_, stop := n.start(t)
	answered := make(chan string, 1)
	go func() {
		res, err := http.Post("http://"+n.config.ServeAddress+"/openyurt.io/v1/namespaces/d/pods/p/upgrade", "", nil)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		answered <- string(body)
	}()
	<-listing
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	close(release)
	if got := <-answered; !strings.Contains(got, "Start updating pod d/p") || !deleted {
		t.Errorf("an upgrade under way at the stop: %q, deleted %v", got, deleted)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestWhatKeepsAHubFromStartingIsNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, n *node)
		says   []string
	}{
		"a port that is in use": {func(t *testing.T, n *node) {
			taken, err := net.Listen("tcp", n.config.ProxyAddress)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { taken.Close() })
		}, []string{"--proxy-port", "in use"}},
		"a kubeconfig that is not there":         {func(_ *testing.T, n *node) { n.config.Kubeconfig = n.path("gone") }, []string{"--kubeconfig", "no such file"}},
		"a kubeconfig that names the hub":        {func(_ *testing.T, n *node) { n.config.SecureAddress = strings.TrimPrefix(n.api.URL, "https://") }, []string{"this hub itself"}},
		"a file of client CAs that is not there": {func(_ *testing.T, n *node) { n.config.ServeClientCAFile = n.path("gone.crt") }, []string{"--serve-client-ca-file", "gone.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, echoToken)
			tt.change(t, n)
			_, err := n.hub()
			for _, word := range tt.says {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("error %v, want one that says %q", err, word)
				}
			}
		})
	}
}
