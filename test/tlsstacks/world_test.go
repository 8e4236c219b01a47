package tlsstacks

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/hub/nodeca"
	"github.com/edgehub-io/edgehub/hub/servertls"
)

const (
	hubName    = "kubernetes.default.svc"
	ownName    = "kubernetes.default.svc.k8s.example.com"
	hubAddress = "127.0.0.1" // in place of 169.254.2.1
	elsewhere  = "www.example.com"
)

// world is a hub at three times, and the apiserver.
type world struct{ cluster, first, second, third *server }

// server serves pods as the hub does.
type server struct {
	listener net.Listener
	cas      string // the ca.crt of a pod that starts at this time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	names := nodeca.Names{DNS: []string{hubName, "node1"}, Addresses: []net.IP{net.ParseIP(hubAddress)}, Apart: []string{ownName}}
	open := func(file string) *nodeca.CA {
		ca, err := nodeca.Open(filepath.Join(dir, file), names)
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	cluster, hub := open("cluster.pem"), open("hub.pem")
	at := func(name string, forged *tls.Certificate) *server {
		cas := filepath.Join(dir, name+".crt")
		if err := os.WriteFile(cas, slices.Concat(certificate(t, cluster), certificate(t, hub)), 0o600); err != nil {
			t.Fatal(err)
		}
		return &server{serve(t, hub, forged), cas}
	}
	rotate := func() {
		if err := hub.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{cluster: &server{listener: serve(t, cluster, nil)}}
	w.first = at("first", forge(t, filepath.Join(dir, "hub.pem")))
	rotate()
	w.second = at("second", nil)
	rotate()
	w.third = at("third", nil)
	return w
}

// serve serves certificates of ca, and forged to who asks for the name elsewhere.
func serve(t *testing.T, ca *nodeca.CA, forged *tls.Certificate) net.Listener {
	t.Helper()
	certs, err := ca.Issue()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", hubAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) *tls.Certificate {
		if name == elsewhere {
			return forged
		}
		return certs.Named(name)
	}
	s := &http.Server{
		Handler:           http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: servertls.BySNI(func() *tls.Certificate { return certs.Usual }, named)},
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() { _ = s.ServeTLS(l, "", "") }() // until it is closed
	t.Cleanup(func() { s.Close() })
	return l
}

// forge returns a certificate, by who has stolen the CA's key, for a name outside of its constraints.
func forge(t *testing.T, file string) *tls.Certificate {
	t.Helper()
	stolen, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{elsewhere}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, stolen.Leaf, key.Public(), stolen.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func certificate(t *testing.T, ca *nodeca.CA) []byte {
	t.Helper()
	pem, err := ca.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	return pem
}

func pool(t *testing.T, pem []byte) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(pem) {
		t.Fatal("no CAs")
	}
	return p
}
