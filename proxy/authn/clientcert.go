package authn

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// ClientCert is the Authenticator of the TLS port. A caller with a token uses that; a caller with
// the node's own client certificate is the node; all others are refused.
//
// nodeUser is the certificate's common name, system:node:NAME, in the organization
// system:nodes. roots returns the CAs of client certificates; it is called for each request,
// so that they can be rotated. The server must request client certificates without verifying
// them (tls.RequestClientCert), so that other callers get a 401 instead of a failed handshake.
//
// While away returns true, so that the certificate cannot be renewed, it is also accepted
// outside its validity period: for grace after its end (forever if grace is 0), and before its
// beginning, because the clock of a machine without a battery may be wrong.
func ClientCert(nodeUser string, roots func() *x509.CertPool, away func() bool, grace time.Duration) Authenticator {
	var last atomic.Pointer[verifiedCert] // caches the only certificate: a check costs as much as a GET
	return func(r *http.Request) (Identity, error) {
		if hasCredentials(r.Header) {
			return Caller, nil
		}
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return Caller, ErrUnauthenticated
		}
		v, now := &verifiedCert{leaf: r.TLS.PeerCertificates[0], roots: roots()}, time.Now()
		if !v.same(last.Load()) {
			if err := v.check(nodeUser, r.TLS.PeerCertificates[1:], now); err != nil {
				return Caller, err
			}
			last.Store(v)
		}
		if err := v.validAt(now, away, grace); err != nil {
			return Caller, err
		}
		return Node, nil
	}
}

// nodeGroup is the organization of node certificates. The CA may also sign certificates with a
// node's name outside this group, which have no permissions.
const nodeGroup = "system:nodes"

// verifiedCert is a client certificate that was verified, except for its validity period.
type verifiedCert struct {
	leaf  *x509.Certificate
	roots *x509.CertPool
}

func (v *verifiedCert) same(other *verifiedCert) bool {
	return other != nil && v.roots == other.roots && v.leaf.Equal(other.leaf)
}

// check verifies the certificate as if now were in its validity period; validAt checks that.
func (v *verifiedCert) check(nodeUser string, rest []*x509.Certificate, now time.Time) error {
	within := now
	if now.Before(v.leaf.NotBefore) {
		within = v.leaf.NotBefore
	} else if now.After(v.leaf.NotAfter) {
		within = v.leaf.NotAfter
	}
	if err := VerifyClient(v.leaf, rest, v.roots, within); err != nil {
		return fmt.Errorf("%w: client certificate of %q: %w", ErrUnauthenticated, v.leaf.Subject.CommonName, err)
	}
	if got := v.leaf.Subject.CommonName; got != nodeUser {
		return fmt.Errorf("%w: the client certificate is %q's, not %q's, and cannot be passed on to the apiserver, since TLS ends here: use a bearer token", ErrUnauthenticated, got, nodeUser)
	}
	if !slices.Contains(v.leaf.Subject.Organization, nodeGroup) {
		return fmt.Errorf("%w: the client certificate of %q is not for the group %s, and so not a node's", ErrUnauthenticated, nodeUser, nodeGroup)
	}
	return nil
}

// validAt returns nil if now is in the certificate's validity period, or, while away, before it or
// within grace after it.
func (v *verifiedCert) validAt(now time.Time, away func() bool, grace time.Duration) error {
	early, late := now.Before(v.leaf.NotBefore), now.After(v.leaf.NotAfter)
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: client certificate of %q: %w: %s", ErrUnauthenticated, v.leaf.Subject.CommonName, errOutsideValidity, fmt.Sprintf(format, args...))
	}
	switch {
	case !early && !late:
		return nil
	case early && !away():
		return refuse("it is not valid before %s, and counts only while the cloud is away", v.leaf.NotBefore.Format(time.RFC3339))
	case late && !away():
		return refuse("it expired at %s, and counts only while the cloud is away", v.leaf.NotAfter.Format(time.RFC3339))
	case late && grace > 0 && now.After(v.leaf.NotAfter.Add(grace)):
		return refuse("it expired at %s, and --offline-token-grace (%v) has passed since", v.leaf.NotAfter.Format(time.RFC3339), grace)
	}
	return nil
}

// VerifyClient returns nil if leaf is a client certificate with a chain, by way of rest, to one
// of roots that is valid at that time.
func VerifyClient(leaf *x509.Certificate, rest []*x509.Certificate, roots *x509.CertPool, at time.Time) error {
	intermediates := x509.NewCertPool()
	for _, c := range rest {
		intermediates.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: intermediates,
		CurrentTime:   at,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}
