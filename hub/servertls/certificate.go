package servertls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/cache/durable"
	"github.com/edgehub-io/edgehub/hub/config"
)

// Certificate is the serving certificate of the TLS ports. It follows changes of its files,
// and is safe for concurrent use.
type Certificate struct {
	pair *cachedFile[*tls.Certificate]
	get  func(*tls.ClientHelloInfo) (*tls.Certificate, error) // a tls.Config.GetCertificate
}

// NewCertificate returns the certificate in --tls-cert-file or, by default, a self-signed one for
// the node's name and addresses, which is kept under --root-dir.
func NewCertificate(c *config.Config, log *slog.Logger) (*Certificate, error) {
	certFile, keyFile := filepath.Join(c.PKIDir(), "serving.crt"), filepath.Join(c.PKIDir(), "serving.key")
	if err := ensureSelfSigned(certFile, keyFile, c.NodeName, servedHosts(c), log); err != nil {
		return nil, fmt.Errorf("self-signed serving certificate: %w", err)
	}
	own, err := readPair(certFile, keyFile, log)
	if err != nil {
		return nil, fmt.Errorf("self-signed serving certificate: %w", err)
	}
	pair := own
	if c.TLSCertFile != "" {
		if pair, err = readPair(c.TLSCertFile, c.TLSKeyFile, log); err != nil {
			return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err)
		}
	}
	kubelet := &named{own: own, log: log}
	return &Certificate{pair, BySNI(pair.get, kubelet.get)}, nil
}

func readPair(certFile, keyFile string, log *slog.Logger) (*cachedFile[*tls.Certificate], error) {
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		return &pair, err
	}
	return newCachedFile(read, func(err error) {
		log.Error("serving certificate cannot be read again; the one in use stays", "certificate", certFile, "key", keyFile, "err", err)
	})
}

const (
	// maxChain is how many certificates a client may send, its own included. Clusters have one or
	// two intermediate CAs. A connection keeps its client's certificates for as long as it lives;
	// crypto/tls alone would take a chain of 256 KiB.
	maxChain = 8
	// maxChainBytes is how large they may be together. One has 1 to 2 KiB, with ML-DSA 4 to 8.
	maxChainBytes = 16 << 10
)

// boundChain is a tls.Config.VerifyConnection, which is called for resumed sessions, too.
func boundChain(c tls.ConnectionState) error {
	size := 0
	for _, cert := range c.PeerCertificates {
		size += len(cert.Raw)
	}
	if n := len(c.PeerCertificates); n > maxChain || size > maxChainBytes {
		return fmt.Errorf("the client has sent %d certificates of %d bytes together; %d of %d bytes are allowed", n, size, maxChain, maxChainBytes)
	}
	return nil
}

// Expires returns when the certificate that is served does, and false if that is the hub's own, which never does.
func (s *Certificate) Expires() (time.Time, bool) {
	end := s.pair.get().Leaf.NotAfter
	return end, end.Before(noExpiration)
}

// ServerConfig returns a configuration that requests a client certificate and leaves its
// verification to the handler: clients without one get a 401, not a failed handshake. The
// handshake fails if a client sends more certificates than a chain of CAs has.
func (s *Certificate) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:       tls.VersionTLS12,
		GetCertificate:   s.get,
		ClientAuth:       tls.RequestClientCert,
		VerifyConnection: boundChain,
	}
}

// servedHosts returns the addresses, beyond loopback, at which TLS is offered.
func servedHosts(c *config.Config) []netip.Addr {
	hosts := []netip.Addr{c.ProxyHost}
	if address, err := netip.ParseAddrPort(c.ServeAddress); err == nil && c.ServeClientCAFile != "" {
		hosts = append(hosts, address.Addr())
	}
	return hosts
}

// ensureSelfSigned makes sure that the two files contain a usable pair. It keeps the present pair
// if that names the node and hosts.
func ensureSelfSigned(certFile, keyFile, node string, hosts []netip.Addr, log *slog.Logger) error {
	names, addresses := []string{node, "localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, host := range hosts {
		if ip := net.IP(host.AsSlice()); host.IsValid() && !host.IsUnspecified() && !slices.ContainsFunc(addresses, ip.Equal) {
			addresses = append(addresses, ip)
		}
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	switch _, unreadable := errors.AsType[*fs.PathError](err); {
	case unreadable && !errors.Is(err, fs.ErrNotExist):
		return err // for an administrator; damaged or mismatched files are replaced
	case err != nil:
	case isFor(pair.Leaf, names, addresses):
		return nil
	default:
		log.Warn("the hub's self-signed serving certificate is replaced: whoever has pinned it has to read it again",
			"certificate", certFile, "reason", "it does not name this node, or an address that the hub serves")
	}
	certPEM, keyPEM, err := selfSigned(names, addresses)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(certFile), 0o700); err != nil {
		return err
	}
	if err := durable.Write(keyFile, keyPEM); err != nil {
		return err
	}
	return durable.Write(certFile, certPEM)
}

func isFor(leaf *x509.Certificate, names []string, addresses []net.IP) bool {
	for _, name := range names {
		if !slices.Contains(leaf.DNSNames, name) {
			return false
		}
	}
	for _, ip := range addresses {
		if !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

// The validity of a self-signed certificate does not depend on the clock: a node without a
// battery-backed clock starts in 1970, and kubelet pins the certificate that it finds.
// noExpiration is the date in RFC 5280, 4.1.2.5, for certificates without a well-defined
// expiration.
//
//nolint:gochecknoglobals // constants
var (
	noBeginning  = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	noExpiration = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// selfSigned creates a certificate that a client can pin as a CA.
func selfSigned(names []string, addresses []net.IP) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: names[0], Organization: []string{"edgehub"}},
		DNSNames:              names,
		IPAddresses:           addresses,
		NotBefore:             noBeginning,
		NotAfter:              noExpiration,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}
