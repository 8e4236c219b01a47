package nodeca_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/hub/nodeca"
)

var names = nodeca.Names{
	DNS:       []string{"kubernetes.default.svc", "node1"},
	Addresses: []net.IP{net.IPv4(169, 254, 2, 1), net.ParseIP("fd00::2:1")},
}

func open(t *testing.T, file string, n nodeca.Names) *nodeca.CA {
	t.Helper()
	ca, err := nodeca.Open(file, n)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// bundle is what a pod that starts now trusts.
func bundle(t *testing.T, ca *nodeca.CA) *x509.CertPool {
	t.Helper()
	pem, err := ca.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("not a certificate: %s", pem)
	}
	return pool
}

// served is the certificate for who asks for a name, or dials an address.
func served(certs *nodeca.Certificates, name string) *tls.Certificate {
	if cert := certs.Named(name); cert != nil {
		return cert
	}
	return certs.Usual
}

// handshake connects as a client that trusts roots and expects a name, which it asks for.
func handshake(t *testing.T, certs *nodeca.Certificates, roots *x509.CertPool, name string) error {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*served(certs, name)}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_ = conn.(*tls.Conn).HandshakeContext(t.Context())
			conn.Close()
		}
	}()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	if err == nil {
		conn.Close()
	}
	return err
}

func issue(t *testing.T, ca *nodeca.CA) *nodeca.Certificates {
	t.Helper()
	certs, err := ca.Issue()
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

func TestNoPodNoticesARotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pki", "ca.pem")
	ca := open(t, file, names)
	pods := []*x509.CertPool{bundle(t, ca)} // by the CA that was there when they started
	for range 5 {                           // as many as a pod outlives
		if err := ca.Rotate(); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, bundle(t, ca))
	}
	cert := issue(t, open(t, file, names)) // after a restart of the hub
	for i, roots := range pods {
		for _, name := range []string{"kubernetes.default.svc", "node1", "169.254.2.1", "fd00::2:1"} {
			if err := handshake(t, cert, roots, name); err != nil {
				t.Errorf("a pod from %d rotations ago connects to %s: %v", len(pods)-1-i, name, err)
			}
		}
	}
}

func TestAStolenCASignsForNoOtherName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	stolen := bundle(t, open(t, file, names))
	other := nodeca.Names{DNS: []string{"registry.example.com"}, Addresses: []net.IP{net.IPv4(10, 0, 0, 1)}}
	ca := open(t, file, other) // the thief changes the names: the CA is replaced, signed by the stolen one
	for _, name := range []string{"registry.example.com", "10.0.0.1"} {
		if err := handshake(t, issue(t, ca), stolen, name); err == nil {
			t.Errorf("a pod takes it for %s", name)
		}
	}
}

// A client that does not know a critical extension refuses the certificate.
func TestWhoDoesNotKnowConstraintsCanReadTheCA(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := open(t, file, names).Rotate(); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(file, file) // by itself, and by the one before
	if err != nil || len(pair.Certificate) != 2 {
		t.Fatal(len(pair.Certificate), err)
	}
	for _, der := range pair.Certificate {
		ca, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if len(ca.PermittedDNSDomains) == 0 || ca.PermittedDNSDomainsCritical {
			t.Errorf("constrained to %v; critical: %t", ca.PermittedDNSDomains, ca.PermittedDNSDomainsCritical)
		}
	}
}

// sign returns a certificate signed by a CA, or by itself.
func sign(t *testing.T, template *x509.Certificate, by *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, by.Leaf, key.Public(), by.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// admits returns nil if a server that takes roots for its CAs of clients takes a certificate that
// by has signed for that of an administrator.
func admits(t *testing.T, roots *x509.CertPool, by *tls.Certificate) error {
	t.Helper()
	admin := sign(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, by)
	intermediates := x509.NewCertPool()
	intermediates.AddCert(by.Leaf)
	_, err := admin.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

func TestAStolenCASignsForNoClient(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	roots := bundle(t, open(t, file, names))
	stolen, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	below := sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "below"}, IsCA: true, BasicConstraintsValid: true}, &stolen)
	for name, by := range map[string]*tls.Certificate{"the CA": &stolen, "a CA that it has signed": below} {
		if err := admits(t, roots, by); err == nil {
			t.Errorf("a client with a certificate of %s is let in", name)
		}
	}
}

func TestANewCAIsNotTrustedByPodsOfTheOldOne(t *testing.T) {
	dir := t.TempDir()
	old := bundle(t, open(t, filepath.Join(dir, "old.pem"), names))
	if err := handshake(t, issue(t, open(t, filepath.Join(dir, "new.pem"), names)), old, "node1"); err == nil {
		t.Error("a CA that nobody signed is trusted")
	}
}

func TestACAThatIsForMoreNamesIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	installed, err := nodeca.Open(file, names, net.IPv4(10, 96, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	roots := bundle(t, installed)
	ca := open(t, file, names) // as the hub, which does not know the address of the Service
	if err := handshake(t, issue(t, ca), roots, "10.96.0.1"); err != nil {
		t.Errorf("the certificate lacks a name that the CA is for: %v", err)
	}
	if got := issue(t, ca); len(got.Usual.Certificate) != 1 {
		t.Errorf("the CA was replaced: %d certificates", len(got.Usual.Certificate))
	}
}

// A further name cuts off no pod that runs: what it is served has no name that its CA may not sign for.
func TestACAForOtherNamesIsSignedByTheOneBefore(t *testing.T) {
	const own, addressOfService = "kubernetes.default.svc.k8s.example", "10.96.0.1"
	moved := net.IPv4(169, 254, 3, 1)
	for name, tt := range map[string]struct {
		names    nodeca.Names
		further  []string // names and addresses
		answered []string // to pods that run; all others of the CA are only to pods that start
	}{
		"a name":          {nodeca.Names{DNS: names.DNS, Addresses: names.Addresses, Apart: []string{own}}, []string{own}, []string{"node1", "169.254.2.1", "fd00::2:1"}},
		"another node":    {nodeca.Names{DNS: []string{"kubernetes.default.svc", "node2"}, Addresses: names.Addresses}, []string{"node2"}, []string{"169.254.2.1"}},
		"another address": {nodeca.Names{DNS: names.DNS, Addresses: []net.IP{moved}}, []string{"169.254.3.1"}, []string{"node1"}},
		"one more":        {nodeca.Names{DNS: names.DNS, Addresses: append([]net.IP{moved}, names.Addresses...)}, []string{"169.254.3.1"}, []string{"169.254.2.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "ca.pem")
			first, err := nodeca.Open(file, names, net.ParseIP(addressOfService))
			if err != nil {
				t.Fatal(err)
			}
			pods := []*x509.CertPool{bundle(t, first)}
			if err := first.Rotate(); err != nil {
				t.Fatal(err)
			}
			pods = append(pods, bundle(t, first))
			ca := open(t, file, tt.names)
			pods = append(pods, bundle(t, ca))
			if err := ca.Rotate(); err != nil {
				t.Fatal(err)
			}
			pods = append(pods, bundle(t, ca))
			certs := issue(t, open(t, file, tt.names))
			for i, roots := range pods {
				for _, name := range append(tt.answered, "kubernetes.default.svc", addressOfService) {
					if err := handshake(t, certs, roots, name); err != nil {
						t.Errorf("pod %d connects to %s: %v", i, name, err)
					}
				}
				for _, name := range tt.further {
					if err, knows := handshake(t, certs, roots, name), i >= 2; (err == nil) != knows {
						t.Errorf("pod %d connects to %s: %v", i, name, err)
					}
				}
			}
		})
	}
}

// A client that is led to the address of the hub from that of the Service asks for neither.
func TestOneCertificateHasAllAddressesForPodsThatStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if _, err := nodeca.Open(file, names, net.IPv4(10, 96, 0, 1)); err != nil {
		t.Fatal(err)
	}
	certs := issue(t, open(t, file, nodeca.Names{DNS: names.DNS, Addresses: []net.IP{net.IPv4(169, 254, 3, 1)}}))
	leaf := certs.Named("169.254.3.1").Leaf
	for _, name := range []string{"169.254.3.1", "10.96.0.1", "kubernetes.default.svc"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}

// A name of its own is in no certificate that is served to who does not ask for it, and the other way round.
func TestANameApartHasACertificateOfItsOwn(t *testing.T) {
	const own = "kubernetes.default.svc.k8s.example"
	n := nodeca.Names{DNS: names.DNS, Addresses: names.Addresses, Apart: []string{own}}
	certs := issue(t, open(t, filepath.Join(t.TempDir(), "ca.pem"), n))
	for _, asked := range []string{"", "node1", "kubernetes.default.svc", "169.254.2.1", "www.example.com"} {
		if leaf := served(certs, asked).Leaf; slices.Contains(leaf.DNSNames, own) {
			t.Errorf("who asks for %q gets a certificate for %q", asked, leaf.DNSNames)
		}
	}
	if leaf := served(certs, own).Leaf; !slices.Equal(leaf.DNSNames, []string{own}) || len(leaf.IPAddresses) != 0 {
		t.Errorf("its certificate is for %q and %v", leaf.DNSNames, leaf.IPAddresses)
	}
}

func TestNoNameIsServedThatAnOlderCAMayNotSignFor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	ca := open(t, file, names)
	before := bundle(t, ca)
	if err := ca.Rotate(); err != nil {
		t.Fatal(err)
	}
	if _, err := nodeca.Open(file, names, net.IPv4(10, 96, 0, 1)); err != nil { // the CA is there: no more names
		t.Fatal(err)
	}
	if err := handshake(t, issue(t, ca), before, "kubernetes.default.svc"); err != nil {
		t.Error(err)
	}
}

func TestRotationsByTwoProcessesLoseNoCA(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	first := open(t, file, names)
	roots := bundle(t, first)
	other, err := nodeca.Load(file) // each opens the folder anew, as another process does
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 4)
	for _, ca := range []*nodeca.CA{first, other, first, other} {
		go func() { failed <- ca.Rotate() }()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	cert := issue(t, first)
	if want := 1 + 4; len(cert.Usual.Certificate) != want {
		t.Errorf("%d certificates; want %d", len(cert.Usual.Certificate), want)
	}
	if err := handshake(t, cert, roots, "node1"); err != nil {
		t.Error(err)
	}
}

func TestACAThatDoesNotExistIsNotRotated(t *testing.T) {
	if _, err := nodeca.Load(filepath.Join(t.TempDir(), "ca.pem")); err == nil {
		t.Error("it was loaded")
	}
}

func TestTheKeyIsForItsOwnerOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pki", "ca.pem")
	open(t, file, names)
	for path, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %v, want %v", path, got, want)
		}
	}
}

func TestADamagedFileIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := nodeca.Open(file, names); err == nil {
		t.Fatal("it was opened")
	}
	if got, _ := os.ReadFile(file); string(got) != "no key" {
		t.Errorf("it was replaced by %q", got)
	}
}
