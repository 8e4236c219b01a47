package servertls

import (
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
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
)

// pinned reads the certificate like a client that pins it.
func pinned(t *testing.T, file string) (*x509.Certificate, *x509.CertPool) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	block, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	return leaf, roots
}

// A hub that first starts when the clock says 1970 (or 2000, where a synctest bubble begins) creates a
// certificate that is valid when the clock is right.
func TestTheServingCertificateIsValidWhateverTheClockSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is the year 2000
		dir := t.TempDir()
		cert, key := filepath.Join(dir, "serving.crt"), filepath.Join(dir, "serving.key")
		if err := ensureSelfSigned(cert, key, "n", nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		leaf, roots := pinned(t, cert)
		for _, year := range []int{1970, 2000, 2026, 2100, 9999} {
			at := time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
			if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "n", Roots: roots, CurrentTime: at}); err != nil {
				t.Errorf("in %d: %v", year, err)
			}
		}
		if err := ensureSelfSigned(cert, key, "n", nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		if again, _ := pinned(t, cert); !again.Equal(leaf) {
			t.Error("the second start makes another one")
		}
	})
}

// The hub does not own a certificate in --tls-cert-file.
func TestACertificateFromAFlagIsNeverReplaced(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "mine.crt"), filepath.Join(dir, "mine.key")
	writeExpired(t, cert, key)
	before, _ := pinned(t, cert)
	c := &config.Config{Options: config.Options{RootDir: dir, NodeName: "n", TLSCertFile: cert, TLSKeyFile: key}}
	serving, err := NewCertificate(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	after, _ := pinned(t, cert)
	if used, err := serving.get(&tls.ClientHelloInfo{}); err != nil || !used.Leaf.Equal(before) || !after.Equal(before) {
		t.Errorf("it was replaced, or is not used: %v", err)
	}
	if end, ok := serving.Expires(); !ok || !end.Equal(before.NotAfter) {
		t.Errorf("it expires %v, %t", end, ok)
	}
}

func TestTheHubsOwnServingCertificate(t *testing.T) {
	c := &config.Config{Options: config.Options{RootDir: t.TempDir(), NodeName: "n"}}
	serving, err := NewCertificate(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if end, ok := serving.Expires(); ok {
		t.Errorf("it expires %v", end)
	}
	key := filepath.Join(c.PKIDir(), "serving.key")
	for file, mode := range map[string]os.FileMode{c.PKIDir(): 0o700 | os.ModeDir, key: 0o600} {
		if info, err := os.Stat(file); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v, want mode %v", file, info.Mode(), err, mode)
		}
	}
	if err := os.WriteFile(key, []byte("truncat"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewCertificate(c, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("a damaged key keeps the hub from starting: %v", err)
	}
}

// Kubelet pins the hub's own certificate, and asks by a name that no certificate has which others get.
func TestKubeletsNameIsInNoCertificateOfOthers(t *testing.T) {
	name, dir := kubeconfig.NewHubName(), t.TempDir()
	mine := filepath.Join(dir, "mine.crt")
	writeExpired(t, mine, filepath.Join(dir, "mine.key"))
	for which, file := range map[string]string{"self-signed": "", "from a flag": mine} {
		t.Run(which, func(t *testing.T) {
			c := &config.Config{Options: config.Options{RootDir: t.TempDir(), NodeName: "n", TLSCertFile: file, TLSKeyFile: strings.TrimSuffix(file, ".crt") + ".key"}}
			serving, err := NewCertificate(c, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			own, roots := pinned(t, filepath.Join(c.PKIDir(), "serving.crt"))
			hub := httptest.NewUnstartedServer(http.NotFoundHandler())
			hub.Listener = tls.NewListener(hub.Listener, serving.ServerConfig()) // StartTLS has a certificate of its own
			hub.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			hub.Start()
			defer hub.Close()
			leaf := func(name string) *x509.Certificate {
				t.Helper()
				var state tls.ConnectionState
				conn, err := tls.Dial("tcp", hub.Listener.Addr().String(), &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // the certificates are looked at below
				if err == nil {
					state = conn.ConnectionState()
					err = conn.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
				return state.PeerCertificates[0]
			}
			if _, err := leaf(name).Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
				t.Errorf("kubelet refuses it: %v", err)
			}
			want := own
			if file != "" {
				want, _ = pinned(t, file)
			}
			for _, other := range []string{"", "n", "localhost", "edgehub.invalid", "a.edgehub.invalid"} {
				if got := leaf(other); !got.Equal(want) {
					t.Errorf("by the name %q: %v", other, got.DNSNames)
				}
			}
		})
	}
}

// A connection keeps its client's certificates for as long as it lives.
func TestAClientsChainIsBounded(t *testing.T) {
	leaf, another := newSelfSigned(t, &x509.Certificate{}), newSelfSigned(t, &x509.Certificate{}).Leaf.Raw
	large := newSelfSigned(t, &x509.Certificate{ExtraExtensions: []pkix.Extension{{Id: []int{1, 2, 3, 4}, Value: make([]byte, maxChainBytes)}}}).Leaf.Raw
	c := &config.Config{Options: config.Options{RootDir: t.TempDir(), NodeName: "n"}}
	serving, err := NewCertificate(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var held atomic.Int64
	hub := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		held.Store(int64(len(r.TLS.PeerCertificates)))
	}))
	hub.TLS = serving.ServerConfig()
	hub.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	hub.StartTLS()
	defer hub.Close()
	for name, tt := range map[string]struct {
		rest    [][]byte
		refused bool
	}{
		"no chain":                      {nil, false},
		"two intermediates and a root":  {slices.Repeat([][]byte{another}, 3), false},
		"as many as there may be":       {slices.Repeat([][]byte{another}, maxChain-1), false},
		"one more":                      {slices.Repeat([][]byte{another}, maxChain), true},
		"ninety-nine":                   {slices.Repeat([][]byte{another}, 99), true},
		"one that is larger than a few": {[][]byte{large}, true},
	} {
		for version, max := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
			t.Run(name+", "+version, func(t *testing.T) {
				held.Store(-1)
				chain := *leaf
				chain.Certificate = append(slices.Clone(leaf.Certificate), tt.rest...)
				transport := &http.Transport{TLSClientConfig: &tls.Config{
					InsecureSkipVerify: true, MaxVersion: max, Certificates: []tls.Certificate{chain}, //nolint:gosec // the client's certificates are what is tested
				}}
				defer transport.CloseIdleConnections()
				res, err := (&http.Client{Transport: transport}).Get(hub.URL)
				if err == nil {
					res.Body.Close()
				}
				if refused := err != nil; refused != tt.refused || !refused && held.Load() != int64(len(chain.Certificate)) {
					t.Errorf("refused: %v; the connection holds %d certificates", err, held.Load())
				}
			})
		}
	}
}

// newSelfSigned returns a certificate by itself.
func newSelfSigned(t *testing.T, template *x509.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(7)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// writeExpired writes a pair that has expired.
func writeExpired(t *testing.T, certFile, keyFile string) {
	t.Helper()
	pair := newSelfSigned(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "n"}, DNSNames: []string{"n", "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(1980, 1, 1, 0, 0, 30, 0, time.UTC),
	})
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: pair.Leaf.Raw}, keyFile: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
