package servertls

import (
	"crypto/tls"
	"net/netip"
	"strings"
)

// BySNI returns a tls.Config.GetCertificate that serves named(name) to a client that asks for a name (by SNI; in
// lower case here), and usual() to those that named returns nil for. So a certificate by name is seen by nobody who
// does not know the name. A client that dials an IP address asks for no name, so the name is the address, then, at
// which its connection has come in.
func BySNI(usual func() *tls.Certificate, named func(name string) *tls.Certificate) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if cert := named(nameOf(hello)); cert != nil {
			return cert, nil
		}
		return usual(), nil
	}
}

func nameOf(hello *tls.ClientHelloInfo) string {
	if hello.ServerName != "" {
		return strings.ToLower(hello.ServerName)
	}
	if hello.Conn == nil {
		return "" // not from a handshake
	}
	local, err := netip.ParseAddrPort(hello.Conn.LocalAddr().String())
	if err != nil {
		return "" // not TCP
	}
	return local.Addr().Unmap().String()
}
