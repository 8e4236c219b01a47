package servertls

import (
	"crypto/tls"
	"testing"
)

func TestACertificateByNameIsForThoseWhoAskForTheName(t *testing.T) {
	usual, named := new(tls.Certificate), new(tls.Certificate)
	names := map[string]*tls.Certificate{"a.example": named, "": named}
	get := BySNI(func() *tls.Certificate { return usual }, func(name string) *tls.Certificate { return names[name] })
	for asked, want := range map[string]*tls.Certificate{
		"a.example": named, "A.Example": named, "": usual, "b.example": usual, "b.a.example": usual, "*.example": usual,
	} {
		if got, err := get(&tls.ClientHelloInfo{ServerName: asked}); err != nil || got != want {
			t.Errorf("who asks for %q gets the usual one: %t; %v", asked, got == usual, err)
		}
	}
}
