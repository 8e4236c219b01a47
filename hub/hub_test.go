package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/servertls"
	"github.com/edgehub-io/edgehub/proxy/proxytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node has everything that a hub under test needs: an apiserver, a kubeconfig and its own ports.
type node struct {
	config *config.Config
	api    *httptest.Server
	dir    string
	logs   bytes.Buffer // read it after the hub has ended
}

func newNode(t *testing.T, handler http.HandlerFunc) *node {
	t.Helper()
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.UserAgent() == "edgehub/test" && r.URL.Path == "/api/v1/pods" && (q.Has("watch") || q.Has("resourceVersion")) {
			http.NotFound(w, r) // the hub follows the node's pods, and these clouds expect nobody but the test
			return
		}
		handler(w, r)
	}))
	api.EnableHTTP2 = true
	api.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	api.StartTLS()
	t.Cleanup(api.Close)
	n := &node{api: api, dir: t.TempDir()}
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
	o.ServePort, o.ProxyPort, o.ProxySecurePort = proxytest.FreePort(t), proxytest.FreePort(t), proxytest.FreePort(t)
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

func fetch(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
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

	if code, body := fetch(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/version"); code != 200 || body != "Bearer first-token" {
		t.Errorf("10261: %d %q, want the node's token to be lent", code, body)
	}
	for path, want := range map[string]string{
		"/v1/healthz": "OK", "/v1/readyz": "OK", "/metrics": "edgehub_upstream_up", "/pods": `"nodeName":"n1"`,
	} {
		if code, body := fetch(t, http.DefaultClient, "http://"+n.config.ServeAddress+path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("10267%s: %d %q, want 200 with %q", path, code, body, want)
		}
	}
}

func TestSecurePortRequiresCredentialsAndKeepsItsCertificate(t *testing.T) {
	n := newNode(t, echoToken)
	_, stop := n.start(t)
	certFile := filepath.Join(n.config.RootDir, "pki", "serving.crt")
	before, err := os.ReadFile(certFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(before)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()

	if code, body := fetch(t, client, "https://"+n.config.SecureAddress+"/api"); code != http.StatusUnauthorized || !strings.Contains(body, `"kind":"Status"`) {
		t.Errorf("a stranger got %d %s", code, body)
	}
	req, _ := http.NewRequest(http.MethodGet, "https://"+n.config.SecureAddress+"/api", nil)
	req.Header.Set("Authorization", "Bearer mine")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if string(body) != "Bearer mine" || res.ProtoMajor != 2 {
		t.Errorf("a caller with a token: %q by %s", body, res.Proto)
	}
	for file, mode := range map[string]os.FileMode{"pki": 0o700 | os.ModeDir, "pki/serving.key": 0o600} {
		if info, err := os.Stat(filepath.Join(n.config.RootDir, file)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v, want mode %v", file, info.Mode(), err, mode)
		}
	}

	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := servertls.NewCertificate(n.config, slog.New(slog.DiscardHandler)); err != nil { // as the next start does
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(certFile); !bytes.Equal(before, after) {
		t.Error("a restart changed the certificate that clients have pinned")
	}
}

func TestDamagedServingKeyIsReplaced(t *testing.T) {
	n := newNode(t, echoToken)
	if _, err := servertls.NewCertificate(n.config, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(n.config.RootDir, "pki", "serving.key")
	if err := os.WriteFile(key, []byte("truncat"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := servertls.NewCertificate(n.config, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("the hub does not start with a damaged key of its own: %v", err)
	}
}

func TestRotatedTokenFileIsReloaded(t *testing.T) {
	n := newNode(t, echoToken)
	h, _ := n.start(t)
	url := "http://" + n.config.ProxyAddress + "/api"

	n.write(t, "token", []byte("second-token\n"))
	h.creds.Reload()
	if _, body := fetch(t, http.DefaultClient, url); body != "Bearer second-token" {
		t.Errorf("after the rotation the apiserver sees %q", body)
	}
	n.write(t, "token", nil) // in the middle of being written
	h.creds.Reload()
	if _, body := fetch(t, http.DefaultClient, url); body != "Bearer second-token" {
		t.Errorf("while the file is empty the apiserver sees %q", body)
	}
}

func TestStartNeedsNoCloud(t *testing.T) {
	n := newNode(t, echoToken)
	n.api.Close()
	n.start(t)
	if code, body := fetch(t, http.DefaultClient, "http://"+n.config.ServeAddress+"/v1/readyz"); code != 200 {
		t.Errorf("readyz without cloud: %d %s", code, body)
	}
	if code, _ := fetch(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/api"); code != 503 {
		t.Errorf("proxy without cloud: %d, want 503", code)
	}
	if code, body := fetch(t, http.DefaultClient, "http://"+n.config.ServeAddress+"/pods"); code != 503 || strings.Count(body, "\n") > 1 {
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
	list, watch := begin(t, url), begin(t, url+"?watch=true")

	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	if rest, err := io.ReadAll(watch); len(rest) > 0 || err != nil {
		t.Errorf("the watch ended with %q, %v", rest, err)
	}
	close(release)
	if rest, err := io.ReadAll(list); string(rest) != "end" || err != nil {
		t.Errorf("the list under way ended with %q, %v", rest, err)
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

func TestPortInUseIsNamed(t *testing.T) {
	n := newNode(t, echoToken)
	taken, err := net.Listen("tcp", n.config.ProxyAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, err := n.hub(); err == nil || !strings.Contains(err.Error(), "--proxy-port") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("error %v, want one that names --proxy-port", err)
	}
}

func TestUnusableKubeconfig(t *testing.T) {
	const rest = "\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
	const cluster = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443'}}]\n"
	tests := map[string]struct{ text, want string }{
		"not there":                  {"", "no such file"},
		"no YAML":                    {"{{", "kubeconfig"},
		"no user":                    {cluster + "users: [{name: u, user: {}}]" + rest, "neither a client certificate nor a token"},
		"a password":                 {cluster + "users: [{name: u, user: {username: a, password: b}}]" + rest, "password"},
		"a plugin":                   {cluster + "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}}}]" + rest, "credential plugins"},
		"an empty token file":        {cluster + "users: [{name: u, user: {tokenFile: empty}}]" + rest, "is empty"},
		"a missing certificate":      {cluster + "users: [{name: u, user: {client-certificate: gone.crt, client-key: gone.key}}]" + rest, "gone.crt"},
		"kubelet's, through the hub": {strings.Replace(cluster, "https://127.0.0.1:6443", "http://127.0.0.1:10261", 1) + "users: [{name: u, user: {token: t}}]" + rest, "https, not http"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, echoToken)
			n.write(t, "empty", nil)
			n.write(t, "kubeconfig", []byte(tt.text))
			if tt.text == "" {
				os.Remove(n.path("kubeconfig"))
			}
			if _, err := n.hub(); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "--kubeconfig") {
				t.Errorf("error %v, want one with %q that names --kubeconfig", err, tt.want)
			}
		})
	}
}

func TestKubeconfigThatNamesTheHubIsALoop(t *testing.T) {
	n := newNode(t, echoToken)
	n.config.SecureAddress = strings.TrimPrefix(n.api.URL, "https://")
	if _, err := n.hub(); err == nil || !strings.Contains(err.Error(), "this hub itself") {
		t.Errorf("error %v, want one that tells of the loop", err)
	}
}
