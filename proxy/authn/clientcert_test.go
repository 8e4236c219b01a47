package authn

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/proxy/proxytest"
)

func TestClientCert(t *testing.T) {
	ca, otherCA := proxytest.NewAuthority(t), proxytest.NewAuthority(t)
	hour := time.Now().Add(time.Hour)
	node := ca.Client(t, "system:node:n1", x509.ExtKeyUsageClientAuth, hour)
	stranger := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"tenants"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: hour, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	stranger, _ = proxytest.Sign(t, stranger, ca)
	tests := map[string]struct {
		cert   *tls.Certificate
		header http.Header
		want   Identity
		err    string // empty: let in
	}{
		"the node's own certificate":                        {cert: node, want: Node},
		"a token":                                           {header: http.Header{"Authorization": {"Bearer x"}}, want: Caller},
		"a token beside the node's certificate":             {cert: node, header: http.Header{"Authorization": {"Bearer x"}}, want: Caller},
		"an empty header beside the node's certificate":     {cert: node, header: http.Header{"Authorization": {""}}, want: Caller},
		"a WebSocket's token beside the node's certificate": {cert: node, header: http.Header{"Sec-Websocket-Protocol": {"v4", webSocketToken + "eA"}}, want: Caller},
		"nothing":                              {err: "neither a bearer token nor"},
		"another node's certificate":           {cert: ca.Client(t, "system:node:n2", x509.ExtKeyUsageClientAuth, hour), err: `"system:node:n2"'s, not "system:node:n1"'s`},
		"an administrator's certificate":       {cert: ca.Client(t, "kubernetes-admin", x509.ExtKeyUsageClientAuth, hour), err: `"kubernetes-admin"'s, not "system:node:n1"'s, and cannot be passed on to the apiserver, since TLS ends here: use a bearer token`},
		"the node's name signed by another CA": {cert: otherCA.Client(t, "system:node:n1", x509.ExtKeyUsageClientAuth, hour), err: "unknown authority"},
		"the node's name in another group":     {cert: &tls.Certificate{Leaf: stranger}, err: "not for the group system:nodes"},
		"the node's certificate after its end": {cert: ca.Client(t, "system:node:n1", x509.ExtKeyUsageClientAuth, time.Now().Add(-time.Minute)), err: "expired"},
		"the node's serving certificate":       {cert: ca.Client(t, "system:node:n1", x509.ExtKeyUsageServerAuth, hour), err: "incompatible key usage"},
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	authenticate := ClientCert("system:node:n1", func() *x509.CertPool { return pool }, func() bool { return false }, 0)
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

func TestAClientCertOutsideOfItsTime(t *testing.T) {
	ca, otherCA := proxytest.NewAuthority(t), proxytest.NewAuthority(t) // good for an hour before and after now
	ended := func(by *proxytest.Authority, user string, ago time.Duration) *tls.Certificate {
		return by.Client(t, user, x509.ExtKeyUsageClientAuth, time.Now().Add(-ago))
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	yes, no := true, false
	tests := map[string]struct {
		cert  *tls.Certificate
		away  bool
		grace time.Duration
		back  time.Duration // of the clock
		err   string        // empty: let in
	}{
		"it has ended, and the cloud is there":               {ended(ca, "system:node:n1", time.Minute), no, 0, 0, "counts only while the cloud is away"},
		"it has ended, and the cloud is away":                {ended(ca, "system:node:n1", time.Minute), yes, 0, 0, ""},
		"it has ended within the grace":                      {ended(ca, "system:node:n1", time.Minute), yes, 2 * time.Minute, 0, ""},
		"it has ended, and the grace is over":                {ended(ca, "system:node:n1", 3*time.Minute), yes, 2 * time.Minute, 0, "--offline-token-grace (2m0s) has passed"},
		"another node's has ended, and the cloud is away":    {ended(ca, "system:node:n2", time.Minute), yes, 0, 0, `"system:node:n2"'s`},
		"another CA's has ended, and the cloud is away":      {ended(otherCA, "system:node:n1", time.Minute), yes, 0, 0, "unknown authority"},
		"the clock is a year late, and the cloud is there":   {ended(ca, "system:node:n1", -time.Minute), no, 0, 365 * 24 * time.Hour, "not valid before"},
		"the clock is a year late, and the cloud is away":    {ended(ca, "system:node:n1", -time.Minute), yes, time.Second, 365 * 24 * time.Hour, ""},
		"the clock is a year late for another CA's":          {ended(otherCA, "system:node:n1", -time.Minute), yes, 0, 365 * 24 * time.Hour, "unknown authority"},
		"it is good, the cloud is away, and there is grace":  {ended(ca, "system:node:n1", -time.Minute), yes, time.Second, 0, ""},
		"it is good, the cloud is there, and there is grace": {ended(ca, "system:node:n1", -time.Minute), no, time.Second, 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := &verifiedCert{leaf: tt.cert.Leaf, roots: pool}
			now := time.Now().Add(-tt.back)
			err := v.check("system:node:n1", nil, now)
			if err == nil {
				err = v.validAt(now, func() bool { return tt.away }, tt.grace)
			}
			if tt.err == "" && err != nil {
				t.Errorf("error %v", err)
			}
			if tt.err != "" && (!errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want ErrUnauthenticated with %q", err, tt.err)
			}
		})
	}
}

// One that was let in while the cloud was away is not once it is back, though it was
// found good otherwise.
func TestAnExpiredClientCertCountsNoMoreWhenTheCloudIsBack(t *testing.T) {
	ca := proxytest.NewAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	away := true
	authenticate := ClientCert("system:node:n1", func() *x509.CertPool { return pool }, func() bool { return away }, 0)
	expired := ca.Client(t, "system:node:n1", x509.ExtKeyUsageClientAuth, time.Now().Add(-time.Minute))
	r := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{expired.Leaf}}}
	for range 2 {
		if id, err := authenticate(r); id != Node || err != nil {
			t.Errorf("away: %v, %v", id, err)
		}
	}
	away = false
	if id, err := authenticate(r); id != Caller || !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("back: %v, %v", id, err)
	}
}

// kubelet presents no certificate once its own has expired, and that one when it asks for a new one.
func TestAKubeletWhoseCertificateHasExpired(t *testing.T) {
	ca := proxytest.NewAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	cert := func(user string, left time.Duration) []*x509.Certificate {
		return []*x509.Certificate{ca.Client(t, user, x509.ExtKeyUsageClientAuth, time.Now().Add(left)).Leaf}
	}
	expired := cert("system:node:n1", -time.Minute)
	for name, tt := range map[string]struct {
		certs     []*x509.Certificate
		header    http.Header
		away, own bool
		want      Identity
		err       string
	}{
		"none while the cloud is away":                           {away: true, own: true, want: Node},
		"none while the cloud is away, from elsewhere":           {away: true, err: "neither a bearer token nor the node's own client certificate was presented; this request has no credentials, and the node's are lent to the node's own programs only: a container"},
		"none while the cloud is there":                          {own: true, err: "neither a bearer token nor"},
		"the expired one while the cloud is there":               {certs: expired, own: true, want: Node},
		"the expired one while the cloud is there, by a thief":   {certs: expired, err: "counts only while the cloud is away"},
		"an administrator's, by a program of the node":           {certs: cert("kubernetes-admin", time.Hour), own: true, away: true, err: `"kubernetes-admin"'s, not`},
		"another node's that has expired, by one of this node's": {certs: cert("system:node:n2", -time.Minute), own: true, away: true, err: `"system:node:n2"'s, not`},
		"a token of a program of the node":                       {header: http.Header{"Authorization": {"Bearer x"}}, own: true, away: true, want: Caller},
	} {
		t.Run(name, func(t *testing.T) {
			away := func() bool { return tt.away }
			program := LoopbackFor(func(*http.Request) error {
				if tt.own {
					return nil
				}
				return errors.New("a container")
			})
			authenticate := OrOwnProgram(ClientCert("system:node:n1", func() *x509.CertPool { return pool }, away, time.Nanosecond), program, away)
			got, err := authenticate(&http.Request{Header: tt.header, TLS: &tls.ConnectionState{PeerCertificates: tt.certs}})
			if tt.err == "" && (err != nil || got != tt.want) {
				t.Errorf("got %v, %v", got, err)
			}
			if tt.err != "" && (!errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want ErrUnauthenticated with %q", err, tt.err)
			}
		})
	}
}
