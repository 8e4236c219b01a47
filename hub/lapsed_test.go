package hub

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/hub/kubeconfig"
)

// withKubelet gives n a kubeconfig for its kubelet, with a certificate that is good for so long, and returns
// the tls-server-name in it.
func (n *node) withKubelet(t *testing.T, good time.Duration) string {
	t.Helper()
	name := kubeconfig.NewHubName()
	n.write(t, "kubelet.conf", []byte(`{clusters: [{name: c, cluster: {server: "https://`+n.config.SecureAddress+`", tls-server-name: `+name+`}}],
contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x, users: [{name: u, user: {client-certificate: kubelet.crt, client-key: kubelet.crt}}]}`))
	cert := newIssuer(t).client(t, x509.ExtKeyUsageClientAuth, good)
	n.write(t, "kubelet.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Leaf.Raw}))
	n.config.KubeletKubeconfig = n.path("kubelet.conf")
	return name
}

// TestAProbeBorrowsNothingInAnOutage is as a program of root's, as kubelet is, whose probes and hooks come from
// its own process, without a certificate, with headers that a pod chooses.
func TestAProbeBorrowsNothingInAnOutage(t *testing.T) {
	const secrets = "/api/v1/namespaces/other/secrets/"
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if path.Base(r.URL.Path) != "there" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		_, _ = io.WriteString(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"namespace":"other","name":"there","uid":"u","resourceVersion":"1"}}`)
	})
	n.config.IdentityUIDs = []uint32{uint32(os.Geteuid())}
	name := n.withKubelet(t, -time.Minute)
	h, _ := n.start(t)
	as := func(serverName string, secret string) (int, string) {
		t.Helper()
		client := n.clientOf(t, nil)
		defer client.CloseIdleConnections()
		client.Transport.(*http.Transport).TLSClientConfig.ServerName = serverName
		return sendTo(t, client, http.MethodGet, "https://"+n.config.SecureAddress+secrets+secret, "", "User-Agent", "kubelet/v1.37.2 (linux/amd64) kubernetes/0000000")
	}
	for _, secret := range []string{"there", "missing"} { // as kubelet has
		n.askCloud(t, secrets+secret)
	}
	if code, body := as(name, "there"); code != http.StatusUnauthorized {
		t.Errorf("while the cloud is there: %d %s", code, body)
	}
	n.loseCloud(t, h)
	if code, body := as(name, "there"); strings.Contains(body, "cannot tell on this machine") {
		t.Skip("NOT RUN: " + body)
	} else if code != http.StatusOK {
		t.Fatalf("a kubelet whose certificate has expired: %d %s", code, body)
	}
	refused := func(what, serverName, why string) {
		t.Helper()
		code, body := as(serverName, "there")
		if missing, other := as(serverName, "missing"); code != http.StatusUnauthorized || missing != code || other != body {
			t.Errorf("%s: %d %s; for one that does not exist %d %s", what, code, body, missing, other)
		}
		if !strings.Contains(body, why) || strings.Contains(body, name) {
			t.Errorf("%s: the answer is %s, want %q", what, body, why)
		}
	}
	refused("a probe at an address", "", "secret tls-server-name")
	refused("a probe at a host", "localhost", "secret tls-server-name")
	refused("another name", kubeconfig.NewHubName(), "another tls-server-name")
	name = n.withKubelet(t, time.Hour)
	refused("the certificate is good", name, "and did not show it")
	name = n.withKubelet(t, -time.Minute)
	for what, change := range map[string]func(string) error{
		"its mode is 0640": func(file string) error { return os.Chmod(file, 0o640) },
		"no such file":     os.Remove,
	} {
		if err := change(n.path("kubelet.conf")); err != nil {
			t.Fatal(err)
		}
		refused(what, name, what)
		name = n.withKubelet(t, -time.Minute)
		if err := os.Chmod(n.path("kubelet.conf"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name = n.withKubelet(t, time.Hour)
	if err := os.Remove(n.path("kubelet.crt")); err != nil {
		t.Fatal(err)
	}
	if code, body := as(name, "there"); code != http.StatusOK {
		t.Errorf("a kubelet whose certificate is missing: %d %s", code, body)
	}
}
