package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity of every certificate; a cluster that one command starts may stay for
// a while, and tests that turn the clock have room before and after.
const (
	validBefore = 24 * time.Hour
	validAfter  = 365 * 24 * time.Hour
)

// authority is a certificate authority. Its methods are safe for concurrent use.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	dir         string
	name        string
}

// identity is what a certificate has about its holder.
type identity struct {
	name   string
	groups []string
	// hosts are the addresses and names that it serves under; with none, it is
	// a client's certificate only.
	hosts []string
	// until is when it ends; zero: after validAfter.
	until time.Time
}

// newAuthority makes an authority whose certificate and key, and those of all
// that it issues, are files in dir.
func newAuthority(dir, name string) (*authority, error) {
	template, err := newTemplate(identity{name: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageCertSign
	template.ExtKeyUsage = nil // a usage here would limit what it may issue
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{certificate: template, key: key, dir: dir, name: name}
	der, err := a.sign(template, key)
	if err != nil {
		return nil, err
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if _, _, err := a.write(name, der, key); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *authority) certFile() string { return filepath.Join(a.dir, a.name+".crt") }
func (a *authority) keyFile() string  { return filepath.Join(a.dir, a.name+".key") }

// issue writes a new key pair and its certificate to file.crt and file.key in
// the authority's folder and returns their paths.
func (a *authority) issue(file string, id identity) (certFile, keyFile string, err error) {
	template, err := newTemplate(id)
	if err != nil {
		return "", "", err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	der, err := a.sign(template, key)
	if err != nil {
		return "", "", fmt.Errorf("issue certificate for %s: %w", id.name, err)
	}
	return a.write(file, der, key)
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	return x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
}

func (a *authority) write(file string, der []byte, key *ecdsa.PrivateKey) (certFile, keyFile string, err error) {
	certFile = filepath.Join(a.dir, file+".crt")
	keyFile = filepath.Join(a.dir, file+".key")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(certFile, certificate, 0o644); err != nil {
		return "", "", err
	}
	return certFile, keyFile, writeKey(keyFile, key)
}

// writeKey writes a private key the way every component reads it.
func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func newTemplate(id identity) (*x509.Certificate, error) {
	// 128 bits: serial numbers need not be remembered to be unique.
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: id.name, Organization: id.groups},
		NotBefore:    time.Now().Add(-validBefore),
		NotAfter:     time.Now().Add(validAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if !id.until.IsZero() {
		template.NotAfter = id.until
	}
	for _, host := range id.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if len(id.hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	return template, nil
}
