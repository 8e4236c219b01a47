package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestClientCert(t *testing.T) {
	ca, otherCA := newAuthority(t), newAuthority(t)
	hour := time.Now().Add(time.Hour)
	node := ca.client(t, "system:node:n1", x509.ExtKeyUsageClientAuth, hour)
	tests := map[string]struct {
		cert   *tls.Certificate
		header http.Header
		want   Identity
		err    string // empty: let in
	}{
		"the node's own certificate":            {cert: node, want: Node},
		"a token":                               {header: http.Header{"Authorization": {"Bearer x"}}, want: Own},
		"a token beside the node's certificate": {cert: node, header: http.Header{"Authorization": {"Bearer x"}}, want: Own},
		"nothing":                               {err: "neither a bearer token nor"},
		"another node's certificate":            {cert: ca.client(t, "system:node:n2", x509.ExtKeyUsageClientAuth, hour), err: `"system:node:n2"'s, not "system:node:n1"'s`},
		"an administrator's certificate":        {cert: ca.client(t, "kubernetes-admin", x509.ExtKeyUsageClientAuth, hour), err: "kubernetes-admin"},
		"the node's name signed by another CA":  {cert: otherCA.client(t, "system:node:n1", x509.ExtKeyUsageClientAuth, hour), err: "unknown authority"},
		"the node's certificate after its end":  {cert: ca.client(t, "system:node:n1", x509.ExtKeyUsageClientAuth, time.Now().Add(-time.Minute)), err: "expired"},
		"the node's serving certificate":        {cert: ca.client(t, "system:node:n1", x509.ExtKeyUsageServerAuth, hour), err: "incompatible key usage"},
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	authenticate := ClientCert("system:node:n1", func() *x509.CertPool { return pool })
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{Header: tt.header, TLS: &tls.ConnectionState{}}
			if tt.cert != nil {
				r.TLS.PeerCertificates = []*x509.Certificate{tt.cert.Leaf}
			}
			got, err := authenticate(r)
			if tt.err == "" && (err != nil || got != tt.want) {
				t.Errorf("got %v, %v", got, err)
			}
			if tt.err != "" && (!errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want ErrUnauthenticated with %q", err, tt.err)
			}
		})
	}
}
