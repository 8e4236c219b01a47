// Package transparency sends the same requests to a real apiserver and through
// the hub, and holds status, headers and body of the answers against each other.
package transparency

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/hub"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/freeport"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// fixture is a real apiserver with a hub in front of it. The hub's node is an
// administrator here, so that every kind of request is allowed.
type fixture struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface // straight to the apiserver
	ways    []way
}

// way is how a client reaches the apiserver: straight, and through the hub.
type way struct {
	name        string
	direct, hub end
}

// end is one of two places that should be the same to a client.
type end struct {
	url    string
	client *http.Client
	token  string // or empty
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	config := c.AdminConfig()
	config.ContentType = protobuf // half the work for 50,000 objects
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{cluster: c, client: client}

	hub := f.startHub(t, "")
	token := f.adminToken(t)
	apiCA := rawclient.Roots(t, c.CAFile())
	cert, err := tls.LoadX509KeyPair(f.adminCert(t))
	if err != nil {
		t.Fatal(err)
	}
	f.ways = []way{
		{
			name:   "plain HTTP/1.1 with the node's identity",
			direct: end{url: c.ServerURL(), client: newClient(t, &tls.Config{RootCAs: apiCA, Certificates: []tls.Certificate{cert}}, false)},
			hub:    end{url: hub.plainURL, client: newClient(t, nil, false)},
		},
		{
			name:   "TLS and HTTP/2 with a token",
			direct: end{url: c.ServerURL(), client: newClient(t, &tls.Config{RootCAs: apiCA}, true), token: token},
			hub:    end{url: hub.secureURL, client: newClient(t, &tls.Config{RootCAs: hub.ca}, true), token: token},
		},
	}
	return f
}

// runningHub is a hub in this process.
type runningHub struct {
	plainURL, secureURL string
	ca                  *x509.CertPool
	stop                func() // returns when nothing of it runs; may be called twice
}

// startHub runs a hub until the test ends. serverAddr is empty for the apiserver
// itself.
func (f *fixture) startHub(t *testing.T, serverAddr string) *runningHub {
	t.Helper()
	dir := t.TempDir()
	o := config.NewOptions()
	o.NodeName, o.RootDir, o.Kubeconfig, o.ServerAddr = "n1", dir, f.cluster.Kubeconfig(), serverAddr
	o.RuntimeEndpoint = "" // no images are pulled here
	for _, port := range []*int{&o.ServePort, &o.ProxyPort, &o.ProxySecurePort} {
		*port = freeport.On127(t)
	}
	c, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	h, err := hub.New(c, "edgehub/test", prometheus.NewRegistry(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &runningHub{
		plainURL: "http://" + c.ProxyAddress, secureURL: "https://" + c.SecureAddress,
		ca: rawclient.Roots(t, filepath.Join(dir, "pki", "serving.crt")), stop: stop,
	}
}

func (f *fixture) adminCert(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile, err := f.cluster.ClientCert("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile
}

// adminToken returns the token of a service account that may do everything.
func (f *fixture) adminToken(t *testing.T) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "default"}}
	if _, err := f.client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "root"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "root", Namespace: "default"}},
	}
	if _, err := f.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := f.client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "root", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// newClient returns a client whose connections end with the test.
func newClient(t *testing.T, config *tls.Config, http2 bool) *http.Client {
	t.Helper()
	c := rawclient.New(config, http2)
	c.Timeout = 2 * time.Minute
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// answer is all that a client sees.
type answer struct {
	status  int
	proto   string
	header  http.Header
	body    []byte
	trailer http.Header
	err     error // of reading the body
}

// unzipped is the same answer as it was before it was compressed, if it was.
func (a *answer) unzipped() *answer {
	if a.header.Get("Content-Encoding") != "gzip" {
		return a
	}
	plain := *a
	plain.header = a.header.Clone()
	plain.header.Del("Content-Encoding")
	z, err := gzip.NewReader(bytes.NewReader(a.body))
	if err == nil {
		plain.body, err = io.ReadAll(z)
	}
	plain.err = errors.Join(a.err, err)
	return &plain
}

// send makes the request at this end.
func (e end) send(ctx context.Context, c call) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, c.method, e.url+c.path, c.newBody())
	if err != nil {
		return nil, err
	}
	for name, value := range c.header {
		req.Header.Set(name, value)
	}
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	res, err := e.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", c.method, c.path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	// What differs between any two answers of one apiserver.
	for _, name := range []string{"Date", "Audit-Id"} {
		if res.Header.Get(name) == "" {
			return nil, fmt.Errorf("%s %s: the answer has no %s", c.method, c.path, name)
		}
		res.Header.Del(name)
	}
	return &answer{res.StatusCode, res.Proto, res.Header, body, res.Trailer, err}, nil
}
