package servertls

import (
	"crypto/tls"
	"strings"
)

// BySNI returns a tls.Config.GetCertificate that serves named(name) to a client that asks for a name (by SNI, in
// lower case here), and usual() to those that ask for none, or for one that named returns nil for. So a certificate
// by name is seen by nobody who does not know the name. A client that dials an IP address asks for no name.
func BySNI(usual func() *tls.Certificate, named func(name string) *tls.Certificate) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName != "" {
			if cert := named(strings.ToLower(hello.ServerName)); cert != nil {
				return cert, nil
			}
		}
		return usual(), nil
	}
}
