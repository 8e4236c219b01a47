package certificate

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// The node's certificate is not the hub's to renew, and expires. The node is served from
// the cache, pods go on with tokens of their own, and what is to be done is said; once
// that is done, everything goes on.
func TestACertificateThatExpiresAndIsNotTheHubs(t *testing.T) {
	t.Parallel()
	n := newNode(t, hubproc.Options{})
	end := time.Now().Add(life).Truncate(time.Second)
	identify := func(end time.Time) {
		cert, key, err := env.ClientCertUntil(end, n.User, "system:nodes")
		if err != nil {
			t.Fatal(err)
		}
		n.Identify(&clientcmdapi.Cluster{Server: env.ServerURL(), CertificateAuthority: env.CAFile()},
			&clientcmdapi.AuthInfo{ClientCertificate: cert, ClientKey: key})
	}
	identify(end)
	n.Start()
	plain, pod := n.plain(), n.secure("", "", n.account())
	podsOfPod := "/api/v1/namespaces/" + n.ns + "/pods"
	w := n.watch(plain)
	if a := pod.get(t, podsOfPod); a.code != http.StatusOK {
		t.Fatalf("a pod: %v", a)
	}
	stop := n.steady(n.plain())
	n.awaitReadyz(http.StatusOK, "OK, the node's certificate, which expired "+end.UTC().Format(time.RFC3339)+", is refused by the apiserver since ",
		"and the node is served from the cache: renew it, or put another into --kubeconfig ")
	if got := n.metric("edgehub_upstream_credentials_refused"); got != 1 {
		t.Errorf("edgehub_upstream_credentials_refused is %v", got)
	}
	if got := n.metric("edgehub_upstream_up"); got != 1 {
		t.Errorf("edgehub_upstream_up is %v", got)
	}
	log, err := os.ReadFile(n.Log)
	if err != nil || !strings.Contains(string(log), "apiserver refuses the node's credentials; the node is served from the cache until it has others") {
		t.Errorf("the log does not say so, %v", err)
	}
	a := plain.do(t, http.MethodPost, "/api/v1/namespaces/"+n.ns+"/pods", `{"kind":"Pod","apiVersion":"v1"}`)
	if a.code != http.StatusServiceUnavailable || !strings.Contains(a.body, "the cloud does not let this node in") || !strings.Contains(a.body, "it refuses the node's credentials (401 Unauthorized)") {
		t.Errorf("a write: %v", a)
	}
	n.Link.Reset() // the watch, which was let in in time, breaks, and cannot be opened again
	n.createPod("meanwhile")
	if a := pod.get(t, podsOfPod); a.code != http.StatusOK || !strings.Contains(a.body, `"meanwhile"`) {
		t.Errorf("a pod is not let through: %v", a)
	}
	if a := plain.get(t, n.podsPath()); a.code != http.StatusOK || strings.Contains(a.body, `"meanwhile"`) {
		t.Errorf("the node, from the cache: %v", a)
	}
	identify(time.Now().Add(time.Hour))
	w.expect(t, "ADDED meanwhile")
	n.awaitOK()
	stop()
	if got := n.metric("edgehub_upstream_credentials_refused"); got != 0 {
		t.Errorf("edgehub_upstream_credentials_refused is %v", got)
	}
}

// A restart changes nothing about that. A bootstrap token that is wrong, or has expired, is named where
// people look, and one that takes its place is used at once.
func TestARestartWithACertificateThatHasExpired(t *testing.T) {
	t.Parallel()
	n := newBootstrapped(t)
	n.Start()
	n.awaitOK()
	n.watch(n.plain()).cancel()
	n.Stop()
	n.writeBootstrap("abcdef.0123456789abcdef")
	n.replaceCertificate(time.Now().Add(-time.Minute))
	n.makeDue() // long since
	n.Start()
	plain := n.plain()
	poll.Eventually(t, "the node is served", func() bool { return plain.get(t, n.podsPath()).code == http.StatusOK })
	n.awaitReadyz(http.StatusOK, "OK, the node's certificate, which expired ", "is refused by the apiserver since ",
		"the apiserver does not take the credentials in --bootstrap-file "+n.bootstrap, "Unauthorized", "kubeadm token create")
	if got := n.metric("edgehub_client_certificate_renewal_failures_total"); got < 1 {
		t.Errorf("%v failures", got)
	}
	log, err := os.ReadFile(n.Log)
	if err != nil || !strings.Contains(string(log), "the hub has asked for a client certificate and got none") {
		t.Errorf("the log does not say so, %v", err)
	}
	if strings.Contains(string(log), "0123456789abcdef") {
		t.Error("the log has the token")
	}
	if a := plain.get(t, n.podsPath()); a.code != http.StatusOK || !strings.Contains(a.body, `"app"`) {
		t.Errorf("the node: %v", a)
	}
	n.writeBootstrap(createToken(t))
	n.awaitOK()
}
