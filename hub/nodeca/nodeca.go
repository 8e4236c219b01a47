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
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/hub/durable"
)

// Names are what a CA may sign certificates for.
type Names struct {
	DNS       []string
	Addresses []net.IP
}

// NamesOf returns the names by which the pods of a node find its hub: those of the apiserver in a
// cluster, and the hub's addresses for pods.
func NamesOf(node string, hub []netip.Addr) Names {
	n := Names{DNS: []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", node,
	}}
	for _, address := range hub {
		n.Addresses = append(n.Addresses, net.IP(address.AsSlice()))
	}
	return n
}

// CA is the certificate authority of a node. Concurrent use is safe, also by several processes.
type CA struct{ file string }

// Load opens the CA in a file, which must exist.
func Load(file string) (*CA, error) {
	ca := &CA{file}
	if _, err := ca.read(); err != nil {
		return nil, ca.wrap(err)
	}
	return ca, nil
}

// Open opens the CA in a file, with its key. If the file does not exist, or its CA may not sign for
// all names, Open creates one that nobody has signed: names that an older CA may not sign for
// could not be served to pods that trust it, since clients compare all names of a certificate with
// the constraints of all its signers. A CA that is created may sign for more addresses, too. A CA of
// an older release, which may sign for clients or has critical constraints, is rotated.
func Open(file string, names Names, more ...net.IP) (*CA, error) {
	ca := &CA{file}
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = ca.change(func(a *authority) error {
			switch {
			case a == nil || !a.covers(names):
			case len(a.cert.ExtKeyUsage) == 0 || a.cert.PermittedDNSDomainsCritical:
				return ca.replace(a, a.names())
			default:
				return nil
			}
			names.Addresses = append(slices.Clone(names.Addresses), more...)
			return ca.replace(nil, names)
		})
	}
	if err != nil {
		return nil, ca.wrap(err)
	}
	return ca, nil
}

// Created returns when the CA replaced the one before it, by this machine's clock.
func (ca *CA) Created() (time.Time, error) {
	info, err := os.Stat(ca.file)
	if err != nil {
		return time.Time{}, ca.wrap(err)
	}
	return info.ModTime(), nil
}

// change calls f with the CA, or with nil if there is none, while no other process changes it.
func (ca *CA) change(f func(*authority) error) error {
	folder, err := os.Open(filepath.Dir(ca.file))
	if err != nil {
		return err
	}
	defer folder.Close() // unlocks it
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock the folder: %w", err)
	}
	a, err := ca.read()
	if errors.Is(err, fs.ErrNotExist) {
		return f(nil)
	}
	if err != nil {
		return err
	}
	return f(a)
}

func (ca *CA) wrap(err error) error {
	return fmt.Errorf("the CA of this node's hub, in %s: %w", ca.file, err)
}

// Certificate returns the certificate that clients of the hub have to trust, in PEM.
func (ca *CA) Certificate() ([]byte, error) {
	a, err := ca.read()
	if err != nil {
		return nil, ca.wrap(err)
	}
	return encode("CERTIFICATE", a.cert.Raw), nil
}

// Rotate replaces the CA by one with a new key. The caller has to issue the serving certificate
// anew.
func (ca *CA) Rotate() error {
	err := ca.change(func(a *authority) error {
		if a == nil {
			return fs.ErrNotExist
		}
		return ca.replace(a, a.names())
	})
	if err != nil {
		return fmt.Errorf("rotate the CA of this node's hub, in %s: %w", ca.file, err)
	}
	return nil
}

// Issue returns a certificate for all names that the CA may sign for, with a new key. It is
// followed by what clients need that know an older CA.
func (ca *CA) Issue() (*tls.Certificate, error) {
	a, err := ca.read()
	if err != nil {
		return nil, fmt.Errorf("issue a serving certificate by the CA in %s: %w", ca.file, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	names := a.names()
	der, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "edgehub", Organization: []string{"edgehub"}},
		DNSNames:    names.DNS,
		IPAddresses: names.Addresses,
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
func (ca *CA) replace(old *authority, names Names) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		// Clients find the signer by its name, so each CA has one of its own.
		Subject:               pkix.Name{CommonName: "edgehub CA " + rand.Text(), Organization: []string{"edgehub"}},
		KeyUsage:              x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLen:            maxOlder, // the CAs after it, which it vouches for
		// Not critical: who does not know constraints would refuse the CA, as Mbed TLS does.
		PermittedDNSDomains: names.DNS,
		PermittedIPRanges:   networks(names.Addresses),
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

// names returns what a may sign certificates for.
func (a *authority) names() Names {
	n := Names{DNS: a.cert.PermittedDNSDomains}
	for _, network := range a.cert.PermittedIPRanges {
		n.Addresses = append(n.Addresses, network.IP)
	}
	return n
}

// covers reports whether a may sign for all names.
func (a *authority) covers(names Names) bool {
	own := a.names()
	for _, name := range names.DNS {
		if !slices.Contains(own.DNS, name) {
			return false
		}
	}
	for _, address := range names.Addresses {
		if !slices.ContainsFunc(own.Addresses, address.Equal) {
			return false
		}
	}
	return true
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
