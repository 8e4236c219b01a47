package hub

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/hub/servertls"
)

// issuer signs client certificates.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	pair := i.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, time.Hour)
	i.cert, i.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return i
}

// client returns a certificate with this validity, for clients or only for servers.
func (i *issuer) client(t *testing.T, usage x509.ExtKeyUsage, good time.Duration) *tls.Certificate {
	t.Helper()
	return i.sign(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{usage}}, good)
}

func (i *issuer) sign(t *testing.T, template *x509.Certificate, good time.Duration) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(1), pkix.Name{CommonName: "owner"}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(good)
	parent, by := i.cert, i.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (i *issuer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

// withClientCAs makes n offer its API to clients of these CAs, at an address that is not on loopback
// if the machine has one.
func (n *node) withClientCAs(t *testing.T, cas ...*issuer) {
	t.Helper()
	var all []byte
	for _, ca := range cas {
		all = append(all, ca.pem()...)
	}
	n.write(t, "clients.crt", all)
	_, port, _ := net.SplitHostPort(n.config.ServeAddress)
	n.config.ServeAddress = net.JoinHostPort(outerAddress(t), port)
	n.config.ServeClientCAFile = n.path("clients.crt")
}

// outerAddress returns an address of the machine that is not on loopback, or else one that is.
func outerAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip := a.(*net.IPNet).IP; ip.To4() != nil && !ip.IsLoopback() {
			return ip.String()
		}
	}
	t.Log("this machine has no address but loopback: the API is tried there")
	return "127.0.0.1"
}

// clientOf returns a client that trusts the hub's certificate, and presents own unless that is nil.
func (n *node) clientOf(t *testing.T, own *tls.Certificate) *http.Client {
	t.Helper()
	serving, err := os.ReadFile(filepath.Join(n.config.RootDir, "pki", "serving.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(serving)
	config := &tls.Config{RootCAs: pool}
	if own != nil {
		// Whatever CAs the server asks for: a client may send what it likes.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestAPIOverTLSIsForItsClientCAsOnly(t *testing.T) {
	n := newNode(t, echoToken)
	ca, other := newIssuer(t), newIssuer(t)
	n.withClientCAs(t, ca)
	n.start(t)
	tests := map[string]struct {
		cert *tls.Certificate
		code int
		says string
	}{
		"a certificate of the CA":          {ca.client(t, x509.ExtKeyUsageClientAuth, time.Hour), 200, "OK"},
		"no certificate":                   {nil, 401, "no client certificate was presented"},
		"a certificate of another CA":      {other.client(t, x509.ExtKeyUsageClientAuth, time.Hour), 401, "unknown authority"},
		"an expired certificate":           {ca.client(t, x509.ExtKeyUsageClientAuth, -time.Minute), 401, "expired"},
		"a certificate that is a server's": {ca.client(t, x509.ExtKeyUsageServerAuth, time.Hour), 401, "usage"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			client := n.clientOf(t, tt.cert)
			for _, path := range []string{"/v1/healthz", "/openyurt.io/v1/namespaces/d/pods/p/upgrade"} {
				if tt.code == 200 && path != "/v1/healthz" {
					continue // there is no such pod
				}
				code, body := fetch(t, client, "https://"+n.config.ServeAddress+path)
				if code != tt.code || !strings.Contains(body, tt.says) || strings.Count(body, "\n") > 1 {
					t.Errorf("%s: got %d %q, want %d and one line that says %q", path, code, body, tt.code, tt.says)
				}
			}
		})
	}
	if code, body := fetch(t, http.DefaultClient, "http://"+n.config.ServeAddress+"/pods"); code != 400 {
		t.Errorf("over plain HTTP: %d %q", code, body)
	}
}

func TestTheAPIAcceptsTheNameInItsCertificate(t *testing.T) {
	n := newNode(t, echoToken)
	ca := newIssuer(t)
	n.withClientCAs(t, ca)
	n.start(t)
	client := n.clientOf(t, ca.client(t, x509.ExtKeyUsageClientAuth, time.Hour))
	dial := &net.Dialer{}
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dial.DialContext(ctx, network, n.config.ServeAddress) // as DNS would
	}
	if code, body := fetch(t, client, "https://n1:10267/v1/healthz"); code != 200 {
		t.Errorf("by the node's name: %d %q", code, body)
	}
	if code, _ := sendTo(t, client, http.MethodGet, "https://n1:10267/v1/healthz", "", "Host", "evil.example.com"); code != http.StatusForbidden {
		t.Errorf("under a name that the handshake was not for: %d", code)
	}
}

func TestRotatedClientCAsAreReloaded(t *testing.T) {
	n := newNode(t, echoToken)
	synctest.Test(t, func(t *testing.T) {
		before, after := newIssuer(t), newIssuer(t)
		n.write(t, "clients.crt", before.pem())
		cas, err := servertls.NewClientCAs(n.path("clients.crt"), n.log())
		if err != nil {
			t.Fatal(err)
		}
		api := cas.Admit(http.HandlerFunc(echoToken))
		with := func(ca *issuer) int {
			cert := ca.client(t, x509.ExtKeyUsageClientAuth, time.Hour)
			w := httptest.NewRecorder()
			api.ServeHTTP(w, &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert.Leaf}}})
			return w.Code
		}

		n.write(t, "clients.crt", nil) // in the middle of being written
		time.Sleep(time.Minute)
		if code := with(before); code != http.StatusOK {
			t.Errorf("while the file is empty: %d", code)
		}
		n.write(t, "clients.crt", after.pem())
		time.Sleep(time.Minute)
		if code := with(after); code != http.StatusOK {
			t.Errorf("the new CA's client: %d", code)
		}
		if code := with(before); code != http.StatusUnauthorized {
			t.Errorf("the old CA's client is still let in: %d", code)
		}
	})
}

// What counts as a web page's request is up to package csrf.
func TestWebPagesGetNothing(t *testing.T) {
	reached := 0
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) { reached++; echoToken(w, r) })
	n.start(t)
	cloud := "http://" + n.config.ProxyAddress
	for name, headers := range map[string][]string{
		"DNS rebinding":      {"Host", "evil.example.com:10267"},
		"a form's POST":      {"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"},
		"a page's WebSocket": {"Origin", "https://evil.example.com", "Connection", "Upgrade", "Upgrade", "websocket"},
	} {
		t.Run(name, func(t *testing.T) {
			reached = 0
			if code, body := n.ask(t, http.MethodPost, "/openyurt.io/v1/namespaces/d/pods/p/upgrade", "x", headers...); code != 403 || strings.Count(body, "\n") != 1 {
				t.Errorf("10267: %d %q, want 403 and one line", code, body)
			}
			if code, body := sendTo(t, http.DefaultClient, http.MethodPost, cloud+"/api", "x", headers...); code != 403 || !strings.Contains(body, `"kind":"Status"`) || !strings.Contains(body, `"reason":"Forbidden"`) {
				t.Errorf("10261: %d %q, want 403 and a Status", code, body)
			}
			if reached != 0 {
				t.Errorf("%d requests reached the apiserver", reached)
			}
			if code, body := sendTo(t, http.DefaultClient, http.MethodPost, cloud+"/api", "x", append(headers, "Authorization", "Bearer mine")...); code != 200 || body != "Bearer mine" {
				t.Errorf("10261 with a token of its own: %d %q, want it to be passed on", code, body)
			}
		})
	}
}

func (n *node) log() *slog.Logger { return slog.New(slog.NewTextHandler(&n.logs, nil)) }
