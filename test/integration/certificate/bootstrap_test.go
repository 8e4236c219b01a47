package certificate

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/test/internal/audit"
)

// The first start asks for a certificate and serves the node; a restart uses what is on
// disk, with neither the bootstrap file nor a cloud.
func TestTheFirstStartGetsACertificateAndALaterOneUsesIt(t *testing.T) {
	t.Parallel()
	n := newBootstrapped(t)
	n.Start()
	n.awaitOK()
	plain := n.plain()
	if a := plain.get(t, n.podsPath()); a.code != http.StatusOK || !strings.Contains(a.body, `"app"`) {
		t.Errorf("the node's pods: %v", a)
	}
	for file, want := range map[string]os.FileMode{n.certFile(): 0o600, filepath.Dir(n.certFile()): 0o700 | os.ModeDir} {
		if info, err := os.Stat(file); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if _, err := os.Stat(filepath.Join(n.Root, "pki", "hub.key.pending")); err == nil {
		t.Error("the key of a request is still there when it was answered")
	}
	if users := n.certificatesAskedFor(); len(users) != 1 {
		t.Errorf("certificates were asked for by %v", users)
	}
	if got := n.metric("edgehub_client_certificate_renewal_failures_total"); got != 0 {
		t.Errorf("%v failures", got)
	}

	n.Stop()
	if err := os.Remove(n.bootstrap); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(n.certFile())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Link.Refuse(); err != nil {
		t.Fatal(err)
	}
	n.Link.Reset()
	n.Start()
	n.awaitReadyz(http.StatusOK, "OK, ") // refused connections are noticed by the first request
	after, err := os.ReadFile(n.certFile())
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the certificate is another one, %v", err)
	}
	if a := n.plain().get(t, n.podsPath()); a.code != http.StatusOK || !strings.Contains(a.body, `"app"`) {
		t.Errorf("the node's pods, without the cloud: %v", a)
	}
}

// A start with neither a cloud nor a certificate says what it waits for, and goes on by
// itself.
func TestAStartWithNeitherCloudNorCertificate(t *testing.T) {
	t.Parallel()
	n := newBootstrapped(t)
	if err := n.Link.Refuse(); err != nil {
		t.Fatal(err)
	}
	n.Start() // that is: healthz is 200
	n.awaitReadyz(http.StatusInternalServerError, "not ready: the node has no certificate yet")
	a := n.plain().get(t, n.podsPath())
	if a.code != http.StatusServiceUnavailable {
		t.Errorf("the node is served: %v", a)
	}
	n.awaitReadyz(http.StatusInternalServerError, "not ready: the node has no certificate yet, and no apiserver can be reached to ask for one")
	n.connect()
	n.awaitOK()
	if a := n.plain().get(t, n.podsPath()); a.code != http.StatusOK {
		t.Errorf("the node is not served: %v", a)
	}
	if all := n.asked(func(r audit.Request) bool {
		return r.User.Username == "system:anonymous" && strings.Contains(r.RequestURI, n.Name)
	}); len(all) > 0 {
		t.Errorf("requests went out in nobody's name: %v", all)
	}
}
