package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// TestKubeletOnTheTLSPort is about a kubelet that has no other way than the hub's TLS port:
// it is let in with a certificate of its own, which it has rotated through the hub, and
// does there what kubelets do, with a cloud and, after a restart, without, also when the outage
// outlives its certificate. Then it gets a new one.
func TestKubeletOnTheTLSPort(t *testing.T) {
	e := newEdge(t, "tls", onTLS)
	if conn, err := net.DialTimeout("tcp", strings.TrimPrefix(e.node.HubURL(), "http://"), time.Second); err == nil {
		_ = conn.Close()
		t.Error("the port without TLS is open")
	}
	if code, body := e.asNobody(); code != http.StatusUnauthorized {
		t.Errorf("without a certificate: %d %s", code, body)
	}
	e.expectRotated()

	e.create("app", nil)
	app := e.running("app")
	k := &kubectl{kubeconfig: hubKubeconfig(t, e.ns, e.node)}
	if out := k.run(t, "", "exec", "app", "--", "/app", "version"); out != "v1\n" {
		t.Errorf("exec: %q", out)
	}
	k.followLogs(t, app.pod)

	e.cut("refused")
	e.endCertificate()
	untouched := e.steady(map[string]started{"app": app})
	if err := e.node.KubeletProcess().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	untouched()
	e.kill(&app)
	if err := e.node.Link().Up(); err != nil {
		t.Fatal(err)
	}
	awaitUpstream(t, e.node, 1)
	e.expectRestarts(app.pod, 1)
	e.expectRotated()
	awaitNode(t, e.node)
}

// expectRotated waits until kubelet has a certificate for more than a day.
func (e *edge) expectRotated() {
	e.t.Helper()
	eventually(e.t, "kubelet has rotated its certificate", func(context.Context) string {
		file, err := e.node.KubeletCert()
		if err != nil {
			return err.Error()
		}
		pair, err := tls.LoadX509KeyPair(file, file)
		if err == nil && time.Until(pair.Leaf.NotAfter) < 24*time.Hour {
			err = fmt.Errorf("it is good until %v", pair.Leaf.NotAfter)
		}
		return words(err)
	})
}

// endCertificate gives kubelet a certificate that has ended, as after an outage that lasts longer
// than one. kubelet presents none then. By its kubeconfig the hub knows that it is no probe of kubelet's that
// presents none.
func (e *edge) endCertificate() {
	e.t.Helper()
	certFile, keyFile, err := e.node.KubeletCertUntil(time.Now().Add(-time.Minute))
	if err != nil {
		e.t.Fatal(err)
	}
	file, err := e.node.KubeletCert()
	if err != nil {
		e.t.Fatal(err)
	}
	var pair []byte
	for _, part := range []string{certFile, keyFile} {
		text, err := os.ReadFile(part)
		if err != nil {
			e.t.Fatal(err)
		}
		pair = append(pair, text...)
	}
	if err := os.WriteFile(file, pair, 0o600); err != nil {
		e.t.Fatal(err)
	}
}

// asNobody asks for the node on the TLS port, without credentials.
func (e *edge) asNobody() (code int, body string) {
	e.t.Helper()
	client := rawclient.New(&tls.Config{RootCAs: rawclient.Roots(e.t, e.node.ServingCert())}, true)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.node.SecureURL()+"/api/v1/nodes/"+e.node.Name(), http.NoBody)
	if err != nil {
		e.t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
