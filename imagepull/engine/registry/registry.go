// Package registry makes requests to the registry of one image, or to its mirrors. Whatever a
// registry answers, the number of requests, bytes, time, memory and redirects are bounded.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Client pulls one image from its registry or the registry's mirrors, with the first credential that
// is accepted. It is not safe for concurrent use.
type Client struct {
	name        string   // the image's
	folders     []string // like certs.d
	hosts       func(docker.AuthorizerOpt) docker.RegistryHosts
	credentials []engineapi.Credential
	hostsOwn    map[string]engineapi.Credential // by host, in place of credentials
	usedOwn     bool                            // a host was sent its own
	tried       int                             // credentials that were refused
	header      http.Header                     // of each request
	open        remotes.Resolver                // with the present credential, or nil
}

// Credentials are what a client may present.
type Credentials struct {
	// OfPods are tried in this order, at any host.
	OfPods []engineapi.Credential
	// OfHosts are those of containerd's configuration, by the host of a request. As by CRI, they are used only
	// if there are none of pods.
	OfHosts map[string]engineapi.Credential
}

// New returns a client that, like CRI, reads the configuration of the registry from the folders once
// for each credential. header is sent with each request, also to token servers.
func New(ctx context.Context, name string, folders []string, header http.Header, w *Transports, c Credentials) *Client {
	r := &Client{name: name, folders: folders, credentials: c.OfPods, header: header}
	if len(c.OfPods) == 0 {
		r.hostsOwn = c.OfHosts
	}
	r.hosts = func(access docker.AuthorizerOpt) docker.RegistryHosts {
		return w.once(config.ConfigureHosts(ctx, config.HostOptions{
			HostDir:        hostDir(folders),
			UpdateClient:   w.adopt,
			AuthorizerOpts: []docker.AuthorizerOpt{access, docker.WithAuthHeader(header)},
		}))
	}
	return r
}

// once makes containerd's client, which configures the hosts for each request, use the same
// connections and tokens for all requests of a pull.
func (w *Transports) once(configure docker.RegistryHosts) docker.RegistryHosts {
	var configured []docker.RegistryHost
	return func(name string) ([]docker.RegistryHost, error) {
		if configured != nil {
			return configured, nil
		}
		all, err := configure(name)
		if err != nil {
			return nil, err
		}
		for i, host := range all {
			w.hosts.name(host.Host)
			client := *host.Client // the authorizer has the same one
			client.Transport = contentTransport{next: client.Transport}
			all[i].Client = &client
		}
		configured = all
		return all, nil
	}
}

// hostDir finds the folder of a registry in the first of the roots that has one.
func hostDir(roots []string) func(string) (string, error) {
	return func(host string) (string, error) {
		for _, root := range roots {
			dir, err := config.HostDirFromRoot(root)(host)
			if err == nil || !errdefs.IsNotFound(err) {
				return dir, err
			}
		}
		return "", errdefs.ErrNotFound
	}
}

// Resolve returns the manifest or index that the image's name points to. If the registry gives it
// another type, Resolve fails: containerd would request it as a blob, which registries do not have.
func (r *Client) Resolve(ctx context.Context) (ocispec.Descriptor, error) {
	var target ocispec.Descriptor
	err := r.With(func(resolver remotes.Resolver) (err error) {
		_, target, err = resolver.Resolve(ctx, r.name)
		return err
	})
	if kind := target.MediaType; err == nil && !images.IsManifestType(kind) && !images.IsIndexType(kind) {
		if kind == images.MediaTypeDockerSchema1Manifest {
			kind += " or text/plain" // containerd takes this for that
		}
		return target, &unexpectedResponse{fmt.Sprintf("it sends the manifest with the Content-Type %s, from which containerd pulls no image; have it, or what stands in between, send the manifest's own type, or push the image again in OCI's format", engineapi.Quote(kind))}
	}
	return target, err
}

// With calls do with the credential that was accepted before, or else with one credential after
// another until do is not denied. If the credential was accepted before, its token may have expired:
// With requests a new one, once.
func (r *Client) With(do func(remotes.Resolver) error) error {
	for used := r.open != nil; ; used = false {
		if r.open == nil {
			r.open = docker.NewResolver(docker.ResolverOptions{
				Hosts: r.hosts(docker.WithAuthCreds(r.credential())), Headers: r.header,
			})
		}
		err := do(r.open)
		switch {
		case err == nil || !mayBeDenied(err):
			return err
		case used && isDenied(err):
		case r.tried+1 >= len(r.credentials):
			return err
		default:
			r.tried++
		}
		r.open = nil
	}
}

// credential returns the credential to try. Like CRI's, one of a pod is for all hosts, also mirrors: whoever
// has configured a mirror for this registry trusts it.
func (r *Client) credential() func(host string) (string, string, error) {
	return func(host string) (string, string, error) {
		c, own := r.hostsOwn[host]
		r.usedOwn = r.usedOwn || own
		if r.tried < len(r.credentials) {
			c = r.credentials[r.tried]
		}
		switch {
		case c.IdentityToken != "":
			return "", c.IdentityToken, nil
		case c.Username == "":
			return "", "", nil // a password alone would be taken for a token
		}
		return c.Username, c.Password, nil
	}
}

// mayBeDenied reports whether another credential may succeed. Some registries answer 404 in place of
// 403.
func mayBeDenied(err error) bool {
	return isDenied(err) || errdefs.IsNotFound(err)
}

func isDenied(err error) bool {
	switch StatusOf(err) {
	case http.StatusUnauthorized, http.StatusForbidden:
		return true
	}
	return errors.Is(err, docker.ErrInvalidAuthorization)
}

// StatusOf returns the status code of the registry's answer, or 0.
func StatusOf(err error) int {
	if s, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		return s.StatusCode
	}
	return 0
}
