package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestClientCert(t *testing.T) {
	ca, otherCA := newAuthority(t), newAuthority(t)
	hour := time.Now().Add(time.Hour)
	node := ca.client(t, "system:node:n1", hour)
	signed := func(group string, usage x509.ExtKeyUsage) *authority {
		return ca.sign(t, "system:node:n1", &x509.Certificate{Subject: pkix.Name{Organization: []string{group}}, NotAfter: hour, ExtKeyUsage: []x509.ExtKeyUsage{usage}})
	}
	tests := map[string]struct {
		cert   *authority
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
		"another node's certificate":           {cert: ca.client(t, "system:node:n2", hour), err: `"system:node:n2"'s, not "system:node:n1"'s`},
		"an administrator's certificate":       {cert: ca.client(t, "kubernetes-admin", hour), err: `"kubernetes-admin"'s, not "system:node:n1"'s, and cannot be passed on to the apiserver, since TLS ends here: use a bearer token`},
		"the node's name signed by another CA": {cert: otherCA.client(t, "system:node:n1", hour), err: "unknown authority"},
		"the node's name in another group":     {cert: signed("tenants", x509.ExtKeyUsageClientAuth), err: "not for the group system:nodes"},
		"the node's certificate after its end": {cert: ca.client(t, "system:node:n1", time.Now().Add(-time.Minute)), err: "expired"},
		"the node's serving certificate":       {cert: signed("system:nodes", x509.ExtKeyUsageServerAuth), err: "incompatible key usage"},
	}
	authenticate := ClientCert("system:node:n1", ca.pool, func() bool { return false }, 0)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{Header: tt.header, TLS: &tls.ConnectionState{}}
			if tt.cert != nil {
				r.TLS.PeerCertificates = []*x509.Certificate{tt.cert.cert}
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
	ca, otherCA := newAuthority(t), newAuthority(t) // good for an hour before and after now
	ended := func(by *authority, user string, ago time.Duration) *authority {
		return by.client(t, user, time.Now().Add(-ago))
	}
	yes, no := true, false
	tests := map[string]struct {
		cert  *authority
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
			v := &nodeCert{leaf: tt.cert.cert, roots: ca.pool()}
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
	ca := newAuthority(t)
	away := true
	authenticate := ClientCert("system:node:n1", ca.pool, func() bool { return away }, 0)
	expired := ca.client(t, "system:node:n1", time.Now().Add(-time.Minute))
	r := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{expired.cert}}}
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
	ca := newAuthority(t)
	cert := func(user string, left time.Duration) []*x509.Certificate {
		return []*x509.Certificate{ca.client(t, user, time.Now().Add(left)).cert}
	}
	expired := cert("system:node:n1", -time.Minute)
	for name, tt := range map[string]struct {
		certs     []*x509.Certificate
		header    http.Header
		away, own bool
		want      Identity
		err       string
		lapsed    error
	}{
		"none while the cloud is away":                           {away: true, own: true, want: Node},
		"none while the cloud is away, and kubelet's is good":    {away: true, own: true, lapsed: errors.New("kubelet has one"), err: "neither a bearer token nor the node's own client certificate was presented; kubelet has one"},
		"the expired one, of which lapsed is not asked":          {certs: expired, own: true, lapsed: errors.New("kubelet has one"), want: Node},
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
			authenticate := OrOwnProgram(ClientCert("system:node:n1", ca.pool, away, time.Nanosecond), program, away, func(*http.Request) error { return tt.lapsed })
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

// A constraint of the CA counts how often a chain to it is verified.
func TestACertificateIsVerifiedOnceForAConnection(t *testing.T) {
	ca := newAuthority(t)
	hour := time.Now().Add(time.Hour)
	for name, tt := range map[string]struct {
		user     string
		refusal  error // of the constraint
		code     int
		verified int64 // on the first connection, with two pools of CAs
	}{
		"the node's own":       {"system:node:n1", nil, http.StatusOK, 2},
		"one that is refused":  {"system:node:n1", errors.New("not by this CA"), http.StatusUnauthorized, 2},
		"one of another name":  {"system:node:n2", nil, http.StatusUnauthorized, 0},
		"one that is nobody's": {"", nil, http.StatusUnauthorized, 0},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", name, http2), func(t *testing.T) {
				var verified atomic.Int64
				newPool := func() *x509.CertPool {
					pool := x509.NewCertPool()
					pool.AddCertWithConstraint(ca.cert, func([]*x509.Certificate) error {
						verified.Add(1)
						return tt.refusal
					})
					return pool
				}
				var roots atomic.Pointer[x509.CertPool]
				roots.Store(newPool())
				authenticate := ClientCert("system:node:n1", roots.Load, func() bool { return false }, 0)
				hub := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := authenticate(r); err != nil {
						http.Error(w, err.Error(), http.StatusUnauthorized)
					}
				}))
				hub.TLS, hub.EnableHTTP2 = &tls.Config{ClientAuth: tls.RequestClientCert}, http2
				var conns atomic.Int64
				hub.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { conns.Add(1); return ConnContext(ctx) }
				hub.StartTLS()
				defer hub.Close()
				client := hub.Client()
				transport := client.Transport.(*http.Transport)
				transport.MaxConnsPerHost = 1
				if tt.user != "" {
					c := ca.client(t, tt.user, hour)
					transport.TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{c.cert.Raw}, PrivateKey: c.key}}
				}
				flood := func() {
					var g sync.WaitGroup
					for range 20 {
						g.Go(func() {
							res, err := client.Get(hub.URL)
							if err != nil {
								t.Error(err)
								return
							}
							defer res.Body.Close()
							if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != tt.code {
								t.Errorf("%s %q %v", res.Status, body, err)
							}
						})
					}
					g.Wait()
				}
				flood()
				roots.Store(newPool()) // the CAs are rotated
				flood()
				if got := verified.Load(); got != tt.verified || conns.Load() != 1 {
					t.Errorf("verified %d times on %d connections, want %d on one", got, conns.Load(), tt.verified)
				}
				client.CloseIdleConnections()
				flood()
				if got, want := verified.Load(), tt.verified*3/2; got != want {
					t.Errorf("verified %d times with a second connection, want %d", got, want)
				}
			})
		}
	}
}

// What a caller's own certificates have signed costs no check of a signature: x509 names the
// certificate by whose key it has tried.
func TestNoKeyIsUsedThatNoCAHasSigned(t *testing.T) {
	ca, forger := newAuthority(t), newAuthority(t)
	good := ca.intermediate(t, "an intermediate")
	chain := []*x509.Certificate{forger.intermediate(t, "an intermediate").cert, good.cert}
	node := good.client(t, "system:node:n1", time.Now().Add(time.Hour)).cert
	if err := VerifyClient(node, chain, ca.pool(), time.Now()); err != nil {
		t.Errorf("a chain by way of an intermediate: %v", err)
	}
	err := VerifyClient(node, chain[:1], ca.pool(), time.Now())
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok || strings.Contains(unknown.Error(), "candidate") {
		t.Errorf("a forged chain: %v", err)
	}
}
