package servertls

import (
	"crypto/tls"
	"net"
	"testing"
)

// connAt is a connection that has come in at an address.
type connAt struct {
	net.Conn
	address net.Addr
}

func (c connAt) LocalAddr() net.Addr { return c.address }

func TestACertificateByNameIsForThoseWhoAskForTheName(t *testing.T) {
	usual, named := new(tls.Certificate), new(tls.Certificate)
	names := map[string]*tls.Certificate{"a.example": named, "192.0.2.1": named}
	get := BySNI(func() *tls.Certificate { return usual }, func(name string) *tls.Certificate { return names[name] })
	at := func(address string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(address), Port: 443} }
	for asked, tt := range map[string]struct {
		address net.Addr
		want    *tls.Certificate
	}{
		"a.example": {at("192.0.2.2"), named}, "A.Example": {at("192.0.2.2"), named}, "b.example": {at("192.0.2.1"), usual},
		"b.a.example": {at("192.0.2.2"), usual}, "*.example": {at("192.0.2.2"), usual},
	} {
		if got, err := get(&tls.ClientHelloInfo{ServerName: asked, Conn: connAt{address: tt.address}}); err != nil || got != tt.want {
			t.Errorf("who asks for %q at %v gets the usual one: %t; %v", asked, tt.address, got == usual, err)
		}
	}
	for name, tt := range map[string]struct {
		address net.Addr
		want    *tls.Certificate
	}{
		"its address": {at("192.0.2.1"), named}, "another": {at("192.0.2.2"), usual}, "IPv6": {at("fd00::1"), usual}, "no TCP": {&net.UnixAddr{Name: "@"}, usual},
	} {
		if got, err := get(&tls.ClientHelloInfo{Conn: connAt{address: tt.address}}); err != nil || got != tt.want {
			t.Errorf("who asks for no name at %s gets the usual one: %t; %v", name, got == usual, err)
		}
	}
}
