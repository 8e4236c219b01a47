package authn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

// authority signs certificates. It is good for an hour before and after now.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	return (*authority)(nil).intermediate(t, "test CA")
}

// intermediate returns an authority that a has signed; nil is itself.
func (a *authority) intermediate(t *testing.T, name string) *authority {
	t.Helper()
	return a.sign(t, name, &x509.Certificate{NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
}

// client returns the certificate of a client in the group system:nodes.
func (a *authority) client(t *testing.T, user string, notAfter time.Time) *authority {
	t.Helper()
	return a.sign(t, user, &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"system:nodes"}}, NotAfter: notAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) sign(t *testing.T, name string, template *x509.Certificate) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.Subject.CommonName = big.NewInt(1), time.Now().Add(-time.Hour), name
	if a == nil {
		a = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

// pool trusts a.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}
