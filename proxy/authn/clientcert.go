package authn

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// ClientCert is the Authenticator of the TLS port. A caller with a token uses that; a caller with
// the node's own client certificate is the node; all others are refused.
//
// nodeUser is the certificate's common name, system:node:NAME, in the organization
// system:nodes. roots returns the CAs of client certificates; it is called for each request,
// so that they can be rotated. The server must request client certificates without verifying
// them (tls.RequestClientCert), so that other callers get a 401 instead of a failed handshake.
// With [ConnContext], a certificate is verified once for a connection and roots, whatever the result.
//
// While away returns true, so that the certificate cannot be renewed, it is also accepted
// outside its validity period: for grace after its end (forever if grace is 0), and before its
// beginning, because the clock of a machine without a battery may be wrong.
func ClientCert(nodeUser string, roots func() *x509.CertPool, away func() bool, grace time.Duration) Authenticator {
	return func(r *http.Request) (Identity, error) {
		if hasCredentials(r.Header) {
			return Caller, nil
		}
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return Caller, ErrUnauthenticated
		}
		c, now := &nodeCert{leaf: r.TLS.PeerCertificates[0], roots: roots()}, time.Now()
		check := func() error { return c.check(nodeUser, r.TLS.PeerCertificates[1:], now) }
		if err := verdictOf(r).on(c.roots, check); err != nil {
			return Caller, err
		}
		if err := c.validAt(now, away, grace); err != nil {
			return Caller, err
		}
		return Node, nil
	}
}

type verdictKey struct{}

// ConnContext returns ctx for the requests on one connection: see [ClientCert]. It is for
// http.Server.ConnContext.
func ConnContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, verdictKey{}, &verdict{})
}

// verdict is the result of the last check of a connection's certificate, which never changes.
type verdict struct {
	mu    sync.Mutex
	roots *x509.CertPool // of the check; nil: there was none
	err   error
}

func verdictOf(r *http.Request) *verdict {
	if v, ok := r.Context().Value(verdictKey{}).(*verdict); ok {
		return v
	}
	return &verdict{}
}

// on returns the result of check with these roots. Concurrent requests wait for one check.
func (v *verdict) on(roots *x509.CertPool, check func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.roots == nil || v.roots != roots {
		v.roots, v.err = roots, check()
	}
	return v.err
}

// nodeGroup is the organization of node certificates. The CA may also sign certificates with a
// node's name outside this group, which have no permissions.
const nodeGroup = "system:nodes"

// nodeCert is a client certificate that may be the node's.
type nodeCert struct {
	leaf  *x509.Certificate
	roots *x509.CertPool
}

// check verifies the certificate as if now were in its validity period; validAt checks that. What
// costs least comes first.
func (c *nodeCert) check(nodeUser string, rest []*x509.Certificate, now time.Time) error {
	if got := c.leaf.Subject.CommonName; got != nodeUser {
		return fmt.Errorf("%w: the client certificate is %.200q's, not %q's, and cannot be passed on to the apiserver, since TLS ends here: use a bearer token", ErrUnauthenticated, got, nodeUser)
	}
	if !slices.Contains(c.leaf.Subject.Organization, nodeGroup) {
		return fmt.Errorf("%w: the client certificate of %q is not for the group %s, and so not a node's", ErrUnauthenticated, nodeUser, nodeGroup)
	}
	within := now
	if now.Before(c.leaf.NotBefore) {
		within = c.leaf.NotBefore
	} else if now.After(c.leaf.NotAfter) {
		within = c.leaf.NotAfter
	}
	if err := VerifyClient(c.leaf, rest, c.roots, within); err != nil {
		return fmt.Errorf("%w: client certificate of %q: %w", ErrUnauthenticated, nodeUser, err)
	}
	return nil
}

// validAt returns nil if now is in the certificate's validity period, or, while away, before it or
// within grace after it.
func (c *nodeCert) validAt(now time.Time, away func() bool, grace time.Duration) error {
	early, late := now.Before(c.leaf.NotBefore), now.After(c.leaf.NotAfter)
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: client certificate of %q: %w: %s", ErrUnauthenticated, c.leaf.Subject.CommonName, errOutsideValidity, fmt.Sprintf(format, args...))
	}
	switch {
	case !early && !late:
		return nil
	case early && !away():
		return refuse("it is not valid before %s, and counts only while the cloud is away", c.leaf.NotBefore.Format(time.RFC3339))
	case late && !away():
		return refuse("it expired at %s, and counts only while the cloud is away", c.leaf.NotAfter.Format(time.RFC3339))
	case late && grace > 0 && now.After(c.leaf.NotAfter.Add(grace)):
		return refuse("it expired at %s, and --offline-token-grace (%v) has passed since", c.leaf.NotAfter.Format(time.RFC3339), grace)
	}
	return nil
}

// VerifyClient returns nil if leaf is a client certificate with a chain, by way of rest, to one
// of roots that is valid at that time. In rest, each certificate is signed by the next one or by
// one of roots, as in TLS.
//
// Signatures are checked with no other keys than those of roots, and of certificates that a chain
// leads to: a caller may send keys and signatures that cost thousands of times as much.
func VerifyClient(leaf *x509.Certificate, rest []*x509.Certificate, roots *x509.CertPool, at time.Time) error {
	options := x509.VerifyOptions{
		Roots:         roots,
		Intermediates: x509.NewCertPool(),
		CurrentTime:   at,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range slices.Backward(rest) {
		if _, err := c.Verify(options); err == nil {
			options.Intermediates.AddCert(c)
		}
	}
	_, err := leaf.Verify(options)
	return err
}
