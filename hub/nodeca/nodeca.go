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
	"slices"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/cache/durable"
)

// CA is the certificate authority of a node. Concurrent use is safe, also by several processes.
type CA struct {
	file  string
	names Names // that are served; it may sign for more addresses
}

// Load opens the CA in a file, which must exist.
func Load(file string) (*CA, error) {
	ca := &CA{file: file}
	a, err := ca.read()
	if err != nil {
		return nil, ca.wrap(err)
	}
	ca.names = a.names()
	return ca, nil
}

// Open opens the CA in a file, with its key. If the file does not exist, Open creates one, which may
// sign for more addresses, too. A CA that may not sign for all names is replaced by one that may, and
// for the addresses of the one before.
func Open(file string, names Names, more ...net.IP) (*CA, error) {
	ca := &CA{file, names}
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = ca.change(func(a *authority) error {
			switch {
			case a == nil:
				return ca.replace(nil, names.with(more))
			case !a.covers(names):
				return ca.replace(a, names.with(more).with(a.names().Addresses))
			default:
				return nil
			}
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

// authority is a CA with its key.
type authority struct {
	cert  *x509.Certificate
	key   crypto.Signer
	older []*x509.Certificate // the same CA signed by the one before it, that one signed by its predecessor, and so on
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
	a := &authority{cert: pair.Leaf, key: key}
	for _, der := range pair.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		a.older = append(a.older, cert)
	}
	return a, nil
}

// replace writes a new CA. old, unless it is nil, signs it, too, for the names that both may sign for.
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
		PermittedDNSDomains: slices.Concat(names.DNS, names.Apart),
		PermittedIPRanges:   networks(names.Addresses),
	}
	der, err := sign(template, key.Public(), &authority{cert: template, key: key})
	if err != nil {
		return err
	}
	chain := [][]byte{der}
	if old != nil {
		older, err := old.vouch(template, key.Public())
		if err != nil {
			return err
		}
		for _, cert := range older {
			chain = append(chain, cert.Raw)
		}
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

// vouch returns what clients need that trust a, or a CA before it, to trust the one after it: its
// certificate by a, for the names that both may sign for, and those by which a itself is trusted.
func (a *authority) vouch(next *x509.Certificate, key crypto.PublicKey) ([]*x509.Certificate, error) {
	shared := constraints(next).and(a.names())
	template := *next
	template.PermittedDNSDomains, template.PermittedIPRanges = shared.DNS, networks(shared.Addresses)
	der, err := sign(&template, key, a)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	chain := append([]*x509.Certificate{cert}, a.older...)
	for i, cert := range chain {
		// A certificate without constraints of one kind is for all names of that kind: it is dropped.
		if shared = shared.and(constraints(cert)); len(shared.DNS) == 0 || len(shared.Addresses) == 0 {
			return chain[:i], nil
		}
	}
	return chain[:min(len(chain), maxOlder)], nil
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
