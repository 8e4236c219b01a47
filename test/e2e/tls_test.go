package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// TestKubeletOnTheTLSPort is about a kubelet that has no other way than the hub's TLS port:
// it is let in with a certificate of its own, which it has rotated through the hub, and
// does there what kubelets do, with a cloud and, after a restart, without.
func TestKubeletOnTheTLSPort(t *testing.T) {
	e := newEdge(t, "tls", onTLS)
	if conn, err := net.DialTimeout("tcp", strings.TrimPrefix(e.node.HubURL(), "http://"), time.Second); err == nil {
		_ = conn.Close()
		t.Error("the port without TLS is open")
	}
	if code, body := e.asNobody(); code != http.StatusUnauthorized {
		t.Errorf("without a certificate: %d %s", code, body)
	}
	eventually(t, "kubelet has rotated its certificate", func(context.Context) string {
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

	e.create("app", nil)
	app := e.running("app")
	k := &kubectl{kubeconfig: hubKubeconfig(t, e.ns, e.node)}
	if out := k.run(t, "", "exec", "app", "--", "/app", "version"); out != "v1\n" {
		t.Errorf("exec: %q", out)
	}
	k.followLogs(t, app.pod)

	e.cut("refused")
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
	awaitNode(t, e.node, true)
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
