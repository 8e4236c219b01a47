package nodeca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
)

// Certificates are what a hub serves to pods. Clients compare all names of a certificate with the
// constraints of all its signers, so a name that an older CA may not sign for is in none that a pod
// gets that knows only that CA, unless the pod asks for this very name.
type Certificates struct {
	Usual *tls.Certificate // for who asks for no name, or for one that is not ours
	named map[string]*tls.Certificate
}

// Named returns the certificate for who asks for a name, in lower case, or has dialed an address. It is
// nil if that is the usual one.
func (c *Certificates) Named(name string) *tls.Certificate { return c.named[name] }

// Issue returns certificates for the CA's names, with new keys. They are followed by what clients
// need that know an older CA.
func (ca *CA) Issue() (*Certificates, error) {
	a, err := ca.read()
	if err != nil {
		return nil, fmt.Errorf("issue a serving certificate by the CA in %s: %w", ca.file, err)
	}
	own, shared := a.names(), a.shared()
	served := Names{DNS: ca.names.DNS, Addresses: own.Addresses}.and(shared)
	c := &Certificates{named: map[string]*tls.Certificate{}}
	if c.Usual, err = a.issue(served); err != nil {
		return nil, err
	}
	// Some libraries take an address beside the names for a name that the constraints do not permit.
	byName, err := a.issue(Names{DNS: served.DNS})
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Concat(ca.names.DNS, ca.names.Apart) {
		c.named[name] = byName
		if !slices.Contains(served.DNS, name) {
			if c.named[name], err = a.issue(Names{DNS: []string{name}}); err != nil {
				return nil, err
			}
		}
	}
	for _, address := range own.Addresses {
		if !shared.hasAddress(address) {
			// With all addresses: kube-proxy may have led a client here from another one.
			if c.named[address.String()], err = a.issue(Names{DNS: served.DNS, Addresses: own.Addresses}); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// issue returns a certificate for names, with a new key.
func (a *authority) issue(names Names) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
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
	cert := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	for _, older := range a.older {
		cert.Certificate = append(cert.Certificate, older.Raw)
	}
	return cert, nil
}
