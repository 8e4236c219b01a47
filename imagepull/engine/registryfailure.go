package engine

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
)

// failure says what is wrong with the registry, or with the way there.
func (r *registry) failure(err error) *Error {
	text := r.plain(err)
	if busy, ok := errors.AsType[*busyError](err); ok {
		f := errorf(RegistryBusy, "registry %s asks to come back later (%s)", r.host(), text)
		f.RetryAfter = busy.after
		return f
	}
	if odd, ok := errors.AsType[*oddAnswer](err); ok {
		return errorf(Corrupt, "registry %s cannot be pulled from: %s", r.host(), odd.what)
	}
	code := statusOf(err)
	switch {
	case isDenied(err):
		return r.named(errorf(Unauthorized, "registry %s refuses: %s (%s)", r.host(), r.presented(), text))
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		return errorf(RegistryBusy, "registry %s has trouble of its own (%s)", r.host(), text)
	case errdefs.IsNotFound(err):
		return errorf(NotFound, "registry %s has no such image%s; check its name, and whether it was pushed", r.host(), r.orHides())
	case isUntrusted(err):
		return errorf(Untrusted, "the certificate of registry %s is not trusted (%s); put the authority's certificate into %s on this node", r.host(), text, r.folder("ca.crt"))
	case isPlain(err):
		return errorf(Unreachable, "registry %s speaks plain HTTP (%s); if it is to, say so in %s on this node", r.host(), text, r.folder("hosts.toml"))
	case isWire(err):
		return errorf(Unreachable, "registry %s cannot be reached: %s (%s)", r.host(), trouble(err), text)
	}
	return errorf(Other, "registry %s: %s", r.host(), text)
}

// host is the registry's name as it stands in the image's.
func (r *registry) host() string {
	host, _, _ := strings.Cut(r.name, "/")
	if named, err := reference.ParseNormalizedNamed(r.name); err == nil {
		host = reference.Domain(named)
	}
	return host
}

// folder is where the node's administrator says how to reach the registry.
func (r *registry) folder(file string) string {
	return filepath.Join(r.folders[0], r.host(), file)
}

// presented describes how many credentials were refused, and what to do.
func (r *registry) presented() string {
	switch n := len(r.refused()); n {
	case 0:
		return "there are no credentials for it among the pod's imagePullSecrets; add one"
	case 1:
		return "the only credential for it was tried; check it"
	default:
		return fmt.Sprintf("all %d credentials for it were tried; check them", n)
	}
}

func (r *registry) refused() []Credential {
	return r.credentials[:min(r.tried+1, len(r.credentials))]
}

// named has f name the credentials that were refused, each to those who may know of it.
func (r *registry) named(f *Error) *Error {
	for _, c := range r.refused() {
		f = f.Explain(c.Namespace, fmt.Errorf("%s was tried", c.Source))
	}
	return f
}

func (r *registry) orHides() string {
	if len(r.credentials) == 0 {
		return ", or none that is shown without credentials"
	}
	return ", or none that is shown to the credentials that were tried"
}

// address finds what looks like an address in a text.
var address = regexp.MustCompile(`[a-z]+://[^\s"']+`)

// noise is what containerd's client puts before what happened.
var noise = strings.NewReplacer("httpReadSeeker: failed open: ", "", "failed to do request: ", "", "failed to authorize: ", "",
	"pull access denied, repository does not exist or may require authorization: ", "")

// plain is a quotation of err's text without what may be secret: queries of addresses,
// which lead to storage that needs no other key; users in them; and the credentials,
// which a registry may have echoed.
func (r *registry) plain(err error) string {
	text := address.ReplaceAllStringFunc(err.Error(), func(raw string) string {
		end := strings.TrimRight(raw, ":,;.)")
		u, err := url.Parse(end)
		if err != nil {
			return "(an address)"
		}
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		return u.String() + raw[len(end):]
	})
	for _, c := range r.credentials {
		for _, secret := range []string{c.Password, c.IdentityToken, c.basic()} {
			if secret != "" {
				text = strings.ReplaceAll(text, secret, "…")
			}
		}
	}
	return quote(noise.Replace(text))
}

// basic is how a password stands in a request's header, or "" without one.
func (c Credential) basic() string {
	if c.Password == "" {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password))
}

func isUntrusted(err error) bool {
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unverified || unknown
}

// isPlain reports whether TLS was answered with plain HTTP.
func isPlain(err error) bool {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok && string(record.RecordHeader[:]) == "HTTP/" ||
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

func isWire(err error) bool {
	_, wire := errors.AsType[*wireError](err)
	_, net := errors.AsType[net.Error](err)
	return wire || net
}

// trouble is a guess at where to look.
func trouble(err error) string {
	if w, ok := errors.AsType[*wireError](err); ok {
		err = w.cause // what stands before it hides whether it took too long
	}
	if errors.Is(err, errStalled) {
		return "the connection is open, but dead"
	}
	if errors.Is(err, errSlow) {
		return "it is too slow to be waited for; what came in is kept"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "its name is not known; check it, and the node's DNS"
		}
		return "its name cannot be looked up; check the node's DNS"
	}
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		return "it does not answer in time; check the line"
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return "nobody takes the connection; check that it runs, and the way there"
	}
	return "the connection breaks; check the line"
}
