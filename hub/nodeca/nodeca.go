package nodeca

import (
	"crypto"
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
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/edgehub-io/edgehub/hub/durable"
)

// Names are what a CA may sign certificates for.
type Names struct {
	DNS       []string
	Addresses []net.IP
}

// CA is the certificate authority of a node. Concurrent use is safe; the process must be the
// only one that rotates it.
type CA struct {
	file  string
	names Names
}

// Open opens the CA in a file, with its key, and creates it if it does not exist. A CA with
// constraints other than names is replaced, as by Rotate, since it could not sign for them.
func Open(file string, names Names) (*CA, error) {
	ca := &CA{file: file, names: names}
	a, err := ca.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err = os.MkdirAll(filepath.Dir(file), 0o700); err == nil {
			err = ca.replace(nil)
		}
	case err == nil && !a.isFor(names):
		err = ca.replace(a)
	}
	if err != nil {
		return nil, fmt.Errorf("the CA of this node's hub, in %s: %w", file, err)
	}
	return ca, nil
}

// Certificate returns the certificate that clients of the hub have to trust, in PEM.
func (ca *CA) Certificate() ([]byte, error) {
	a, err := ca.read()
	if err != nil {
		return nil, fmt.Errorf("the CA of this node's hub, in %s: %w", ca.file, err)
	}
	return encode("CERTIFICATE", a.cert.Raw), nil
}

// Rotate replaces the CA by one with a new key. The caller has to issue the serving certificate
// anew.
func (ca *CA) Rotate() error {
	a, err := ca.read()
	if err == nil {
		err = ca.replace(a)
	}
	if err != nil {
		return fmt.Errorf("rotate the CA of this node's hub, in %s: %w", ca.file, err)
	}
	return nil
}

// Issue returns a certificate for all names of the CA, with a new key. It is followed by what
// clients need that know an older CA.
func (ca *CA) Issue() (*tls.Certificate, error) {
	a, err := ca.read()
	if err != nil {
		return nil, fmt.Errorf("issue a serving certificate by the CA in %s: %w", ca.file, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "edgehub", Organization: []string{"edgehub"}},
		DNSNames:    ca.names.DNS,
		IPAddresses: ca.names.Addresses,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key.Public(), a)
	if err != nil {
		return nil, fmt.Errorf("issue a serving certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: append([][]byte{der}, a.older...), PrivateKey: key, Leaf: leaf}, nil
}

// authority is a CA with its key.
type authority struct {
	cert  *x509.Certificate
	key   crypto.Signer
	older [][]byte // the same CA signed by the one before it, that one signed by its predecessor, and so on
}

// maxOlder bounds the chain that the hub sends with its certificate. A pod that is older than
// this many rotations has to be restarted.
const maxOlder = 5

func (ca *CA) read() (*authority, error) {
	data, err := os.ReadFile(ca.file)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("not a CA with its key")
	}
	return &authority{cert: pair.Leaf, key: key, older: pair.Certificate[1:]}, nil
}

// replace writes a new CA, which old signs, too, unless it is nil.
func (ca *CA) replace(old *authority) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		// Clients find the signer by its name, so each CA has one of its own.
		Subject:                     pkix.Name{CommonName: "edgehub CA " + rand.Text(), Organization: []string{"edgehub"}},
		KeyUsage:                    x509.KeyUsageCertSign,
		BasicConstraintsValid:       true,
		IsCA:                        true,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         ca.names.DNS,
		PermittedIPRanges:           networks(ca.names.Addresses),
	}
	der, err := sign(template, key.Public(), &authority{cert: template, key: key})
	if err != nil {
		return err
	}
	chain := [][]byte{der}
	if old != nil {
		if der, err = sign(template, key.Public(), old); err != nil {
			return err
		}
		chain = append(append(chain, der), old.older...)
		chain = chain[:min(len(chain), 1+maxOlder)]
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	content := encode("PRIVATE KEY", keyDER)
	for _, der := range chain {
		content = append(content, encode("CERTIFICATE", der)...)
	}
	return durable.Write(ca.file, content)
}

// isFor reports whether a may sign for names, and for no others.
func (a *authority) isFor(names Names) bool {
	want := x509.Certificate{PermittedDNSDomains: names.DNS, PermittedIPRanges: networks(names.Addresses)}
	return fmt.Sprint(a.cert.PermittedDNSDomains, a.cert.PermittedIPRanges) == fmt.Sprint(want.PermittedDNSDomains, want.PermittedIPRanges)
}

// networks returns a network of one address for each address.
func networks(addresses []net.IP) []*net.IPNet {
	var list []*net.IPNet
	for _, ip := range addresses {
		if v4 := ip.To4(); v4 != nil {
			ip = v4
		}
		list = append(list, &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))})
	}
	return list
}

// sign returns a certificate, for a key, that never expires.
func sign(template *x509.Certificate, key crypto.PublicKey, by *authority) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	template.NotAfter = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	return x509.CreateCertificate(rand.Reader, template, by.cert, key, by.key)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
