package certificate

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// The first start asks for a certificate and serves the node; a restart uses what is on
// disk, with neither the bootstrap file nor a cloud.
func TestTheFirstStartGetsACertificateAndALaterOneUsesIt(t *testing.T) {
	t.Parallel()
	n := newBootstrapped(t, kubeadmGroup)
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
	if exists(n.pendingFile()) {
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
	n := newBootstrapped(t, kubeadmGroup)
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

// A token that is wrong, or has expired, is named where people look, and one that takes
// its place is used at once.
func TestAWrongBootstrapToken(t *testing.T) {
	t.Parallel()
	n := newBootstrapped(t, kubeadmGroup)
	n.writeBootstrap("abcdef.0123456789abcdef")
	n.Start()
	n.awaitReadyz(http.StatusInternalServerError, "the apiserver does not take the credentials in --bootstrap-file "+n.bootstrap, "Unauthorized", "kubeadm token create")
	if got := n.metric("edgehub_client_certificate_renewal_failures_total"); got < 1 {
		t.Errorf("%v failures", got)
	}
	log, err := os.ReadFile(n.Log)
	if err != nil || !bytes.Contains(log, []byte("the hub has asked for a client certificate and got none")) {
		t.Errorf("the log does not say so, %v", err)
	}
	if bytes.Contains(log, []byte("0123456789abcdef")) {
		t.Error("the log has the token")
	}
	n.writeBootstrap(createToken(t, kubeadmGroup))
	n.awaitOK()
}

// Killed after it has asked, and again when it was answered, the hub finds its request,
// and what came of it: nobody has to approve twice.
func TestAKillDuringBootstrapLosesNothing(t *testing.T) {
	t.Parallel()
	n := newBootstrapped(t, waitingGroup)
	n.Start()
	var name string
	poll.Eventually(t, "the hub has asked", func() bool {
		for _, r := range requestsOf(t, n) {
			name = r.Name
		}
		return name != ""
	})
	n.Kill()
	if !exists(n.pendingFile()) {
		t.Fatal("the key is not on disk, though it was asked with it")
	}
	n.Start()
	n.awaitReadyz(http.StatusInternalServerError, "one is being asked for with --bootstrap-file")
	n.Kill()
	approve(t, name)
	poll.Eventually(t, "the request is signed", func() bool {
		now, err := env.client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && len(now.Status.Certificate) > 0
	})
	n.Start()
	poll.Eventually(t, "the certificate is there", func() bool { return exists(n.certFile()) && !exists(n.pendingFile()) })
	if all := requestsOf(t, n); len(all) != 1 {
		t.Errorf("%d requests were made: %v", len(all), all)
	}
}

// requestsOf are the requests of bootstrappers for a node.
func requestsOf(t *testing.T, n *node) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	all, err := env.client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all.Items, func(r certificatesv1.CertificateSigningRequest) bool {
		return !strings.HasPrefix(r.Spec.Username, "system:bootstrap:") || !bytes.Contains(subjectOf(t, r.Spec.Request), []byte(n.User))
	})
}

func approve(t *testing.T, name string) {
	t.Helper()
	requests := env.client.CertificatesV1().CertificateSigningRequests()
	r, err := requests.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ByAdmin", Message: "kubectl certificate approve",
	})
	if _, err := requests.UpdateApproval(t.Context(), name, r, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
