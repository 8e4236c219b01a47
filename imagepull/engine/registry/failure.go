package registry

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Failure classifies an error of the registry, or of the connection to it.
func (r *Client) Failure(err error) *engineapi.Error {
	text := r.Plain(err)
	if busy, ok := errors.AsType[*busyError](err); ok {
		f := engineapi.Errorf(engineapi.RegistryBusy, "registry %s asks to come back later (%s)", r.Host(), text)
		f.RetryAfter = busy.after
		return f
	}
	if unexpected, ok := errors.AsType[*unexpectedResponse](err); ok {
		return engineapi.Errorf(engineapi.Corrupt, "registry %s cannot be pulled from: %s", r.Host(), unexpected.what)
	}
	if local, ok := errors.AsType[*localAddressError](err); ok {
		return engineapi.Errorf(engineapi.Unreachable, "registry %s sends the node to %s, which is at %s: loopback and link-local addresses are refused, since each machine has its own; have the registry name an address at which nodes reach its storage or token server",
			r.Host(), engineapi.Quote(local.host), local.address)
	}
	code := StatusOf(err)
	switch {
	case isDenied(err):
		return r.named(engineapi.Errorf(engineapi.Unauthorized, "registry %s refuses: %s (%s)", r.asked(err), r.presented(), text))
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		return engineapi.Errorf(engineapi.RegistryBusy, "registry %s has trouble of its own (%s)", r.asked(err), text)
	case errdefs.IsNotFound(err):
		return engineapi.Errorf(engineapi.NotFound, "registry %s has no such image%s; check its name, and whether it was pushed", r.Host(), r.orHides())
	case isUntrusted(err):
		return engineapi.Errorf(engineapi.Untrusted, "the certificate of registry %s is not trusted (%s); put the authority's certificate into %s on this node", r.asked(err), text, r.folder("ca.crt"))
	case isPlain(err):
		return engineapi.Errorf(engineapi.Unreachable, "registry %s speaks plain HTTP (%s); if it is to, say so in %s on this node", r.asked(err), text, r.folder("hosts.toml"))
	case isConnError(err):
		return engineapi.Errorf(engineapi.Unreachable, "registry %s cannot be reached: %s (%s)", r.asked(err), trouble(err), text)
	}
	return engineapi.Errorf(engineapi.Other, "registry %s: %s", r.Host(), text)
}

// Host returns the name of the registry in the image's name.
func (r *Client) Host() string {
	host, _, _ := strings.Cut(r.name, "/")
	if named, err := reference.ParseNormalizedNamed(r.name); err == nil {
		host = reference.Domain(named)
	}
	return host
}

// asked returns the name of the registry, and the host that was asked if that is another one: a
// mirror, or where the registry sends the node, such as its storage or its token server.
func (r *Client) asked(err error) string {
	var raw string
	if failed, ok := errors.AsType[*url.Error](err); ok {
		raw = failed.URL
	} else if answered, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		raw = answered.RequestURL
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Host == r.Host() {
		return r.Host()
	}
	return r.Host() + " at " + engineapi.Quote(u.Host)
}

// folder returns the path of a file in which the node's administrator configures the registry.
func (r *Client) folder(file string) string {
	if len(r.folders) == 0 {
		return file + " of a folder that config_path in containerd's configuration names: it names none,"
	}
	return filepath.Join(r.folders[0], r.Host(), file)
}

// presented describes how many credentials were refused, and what to do.
func (r *Client) presented() string {
	switch n := len(r.refused()); n {
	case 0:
		if r.usedOwn {
			return "the auth of registry.configs in containerd's configuration was tried; check it there, or add a credential to the pod's imagePullSecrets"
		}
		return "there are no credentials for it among the pod's imagePullSecrets; add one"
	case 1:
		return "the only credential for it was tried; check it"
	default:
		return fmt.Sprintf("all %d credentials for it were tried; check them", n)
	}
}

func (r *Client) refused() []engineapi.Credential {
	return r.credentials[:min(r.tried+1, len(r.credentials))]
}

// named adds the refused credentials to f, each for the namespace that may know of it.
func (r *Client) named(f *engineapi.Error) *engineapi.Error {
	for _, c := range r.refused() {
		f = f.Explain(c.Namespace, fmt.Errorf("%s was tried", c.Source))
	}
	return f
}

func (r *Client) orHides() string {
	if len(r.credentials) == 0 && !r.usedOwn {
		return ", or none that is shown without credentials"
	}
	return ", or none that is shown to the credentials that were tried"
}

// address matches URLs.
var address = regexp.MustCompile(`[a-z]+://[^\s"']+`)

// noise removes prefixes of containerd's client.
var noise = strings.NewReplacer("httpReadSeeker: failed open: ", "", "failed to do request: ", "", "failed to authorize: ", "",
	"pull access denied, repository does not exist or may require authorization: ", "")

// Plain quotes err without secrets: queries of URLs, which may be signed; users in URLs; and
// credentials, which a registry may have echoed.
func (r *Client) Plain(err error) string {
	text := address.ReplaceAllStringFunc(err.Error(), func(raw string) string {
		end := strings.TrimRight(raw, ":,;.)")
		u, err := url.Parse(end)
		if err != nil {
			return "(an address)"
		}
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		return u.String() + raw[len(end):]
	})
	for _, c := range slices.AppendSeq(slices.Clone(r.credentials), maps.Values(r.hostsOwn)) {
		for _, secret := range []string{c.Password, c.IdentityToken, basic(c)} {
			if secret != "" {
				text = strings.ReplaceAll(text, secret, "…")
			}
		}
	}
	return engineapi.Quote(noise.Replace(text))
}

// basic returns a password as in a request's header, or "" if there is none.
func basic(c engineapi.Credential) string {
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

// isPlain reports whether a TLS handshake was answered with plain HTTP.
func isPlain(err error) bool {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok && string(record.RecordHeader[:]) == "HTTP/" ||
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

func isConnError(err error) bool {
	_, broken := errors.AsType[*connError](err)
	_, network := errors.AsType[net.Error](err)
	return broken || network
}

// trouble describes where to look for the cause.
func trouble(err error) string {
	if w, ok := errors.AsType[*connError](err); ok {
		err = w.cause // connError hides Timeout
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
