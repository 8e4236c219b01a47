package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// newSecureHub is a fakeHub that speaks TLS to those with a client certificate, and
// the files for it: its own certificate, which is good for a client too, and the key.
func newSecureHub(t *testing.T) (h *fakeHub, cert, key string) {
	t.Helper()
	h = &fakeHub{answers: map[string][]http.HandlerFunc{}}
	server := httptest.NewUnstartedServer(h)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	h.address = server.Listener.Addr().String()
	private, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "hub.crt"), filepath.Join(dir, "hub.key")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: server.Certificate().Raw},
		key:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h, cert, key
}

func TestHubsOverTLS(t *testing.T) {
	h, cert, key := newSecureHub(t)
	h.on("POST", api.WebCodes, sends(api.Code{Code: "c"})).on("GET", "/pods", podList(pod("shop", "web-1", oldRevision, needs(corev1.ConditionTrue, newRevision))))
	tests := map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"with a certificate":                   {[]string{"pods", "--certificate-authority", cert, "--client-certificate", cert, "--client-key", key}, cli.Done, "web-1", ""},
		"a link for a browser":                 {[]string{"web", "--certificate-authority", cert, "--client-certificate", cert, "--client-key", key}, cli.Done, "https://" + h.address + "/#code=c\n", "once, until"},
		"without TLS":                          {[]string{"pods"}, cli.Failed, "", "wants TLS and a client certificate: add --certificate-authority, --client-certificate and --client-key"},
		"without a certificate":                {[]string{"pods", "--certificate-authority", cert}, cli.Failed, "", "certificate required"},
		"a hub that is not known":              {[]string{"pods", "--client-certificate", cert, "--client-key", key}, cli.Failed, "", "ROOT-DIR/pki/serving.crt"},
		"a certificate without its key":        {[]string{"pods", "--client-certificate", cert}, cli.Usage, "", "give both or neither"},
		"a key without its certificate":        {[]string{"pods", "--client-key", key}, cli.Usage, "", "give both or neither"},
		"an authority that is not there":       {[]string{"pods", "--certificate-authority", cert + "x"}, cli.Usage, "", "--certificate-authority: open"},
		"an authority that is no certificate":  {[]string{"pods", "--certificate-authority", key}, cli.Usage, "", "holds no PEM certificate"},
		"a certificate that is no certificate": {[]string{"pods", "--client-certificate", key, "--client-key", key}, cli.Usage, "", "--client-certificate, --client-key: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := h.edgehubctl(t, tt.args...)
			got.has(t, tt.code, tt.out, tt.err)
			if tt.code != cli.Done && strings.Count(got.err, "\n") > 1 {
				t.Errorf("on stderr: %q, want one line", got.err)
			}
		})
	}
	var out bytes.Buffer
	run(t.Context(), []string{cli.Verb, "--address", h.address, "--certificate-authority", cert, "--client-certificate=" + cert, "--client-key", key, "upgrade", ""}, &out, &out, usualTiming())
	if got := out.String(); got != "shop/web-1\n" {
		t.Errorf("completed to %q", got)
	}
}
