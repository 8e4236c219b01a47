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
	"fmt"
	"io"
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
	req, _ := http.NewRequest(http.MethodGet, "https://n1:10267/v1/healthz", nil)
	req.Host = "evil.example.com"
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("under a name that the handshake was not for: %d", res.StatusCode)
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

func TestWebPagesGetNothing(t *testing.T) {
	reached := 0
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) { reached++; echoToken(w, r) })
	n.start(t)
	send := func(address, path, token string, headers ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, "http://"+address+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		req.Host = req.Header.Get("Host")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	const upgrade = "/openyurt.io/v1/namespaces/d/pods/p/upgrade"
	for name, headers := range map[string][]string{
		"DNS rebinding":     {"Host", "evil.example.com:10267"},
		"a form's POST":     {"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"},
		"an old browser's":  {"Origin", "https://evil.example.com"},
		"a sandboxed page":  {"Origin", "null"},
		"a link that leads": {"Sec-Fetch-Site", "cross-site"},
	} {
		t.Run(name, func(t *testing.T) {
			reached = 0
			if code, body := send(n.config.ServeAddress, upgrade, "", headers...); code != 403 || strings.Count(body, "\n") != 1 {
				t.Errorf("10267: %d %q, want 403 and one line", code, body)
			}
			if code, body := send(n.config.ProxyAddress, "/api", "", headers...); code != 403 || !strings.Contains(body, `"kind":"Status"`) || !strings.Contains(body, `"reason":"Forbidden"`) {
				t.Errorf("10261: %d %q, want 403 and a Status", code, body)
			}
			if reached != 0 {
				t.Errorf("%d requests reached the apiserver", reached)
			}
			if code, body := send(n.config.ProxyAddress, "/api", "mine", headers...); code != 200 || body != "Bearer mine" {
				t.Errorf("10261 with a token of its own: %d %q, want it to be passed on", code, body)
			}
		})
	}
}

// Browsers always send Origin in the GET of a WebSocket; pages cannot set other headers.
func TestWebSocketsOfWebPagesGetNothing(t *testing.T) {
	n := newNode(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s reached the apiserver", r.URL) })
	n.start(t)
	conn, err := net.Dial("tcp", n.config.ProxyAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /api/v1/namespaces/d/pods/p/exec?command=sh HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\nOrigin: https://evil.example.com\r\n\r\n", n.config.ProxyAddress)
	line := make([]byte, len("HTTP/1.1 403"))
	if _, err := io.ReadFull(conn, line); err != nil || string(line) != "HTTP/1.1 403" {
		t.Errorf("answer %q, %v", line, err)
	}
}

func TestAPIHeadersAreSmall(t *testing.T) {
	n := newNode(t, echoToken)
	n.start(t)
	n.mustBoundHeaders(t, "http://"+n.config.ServeAddress+"/v1/healthz", 16<<10)
}

func TestMissingClientCAFileIsNamed(t *testing.T) {
	n := newNode(t, echoToken)
	n.config.ServeClientCAFile = n.path("gone.crt")
	if _, err := n.hub(); err == nil || !strings.Contains(err.Error(), "--serve-client-ca-file") || !strings.Contains(err.Error(), "gone.crt") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func (n *node) log() *slog.Logger { return slog.New(slog.NewTextHandler(&n.logs, nil)) }
