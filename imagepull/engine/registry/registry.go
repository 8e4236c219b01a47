// Package registry asks the registry of one image, or the mirrors that the node has for
// it. Whatever a registry answers, requests, bytes, time and memory are bounded, and so is
// where it sends the node.
package registry

import (
	"context"
	"errors"
	"net/http"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Client is where one image is pulled from: its own registry, or the mirrors that
// the node has for it, with the first credential that it lets in.
type Client struct {
	name        string   // the image's
	folders     []string // like certs.d
	hosts       func(docker.AuthorizerOpt) docker.RegistryHosts
	credentials []engineapi.Credential
	tried       int         // credentials that have been refused
	header      http.Header // of each request
	open        remotes.Resolver
}

// New reads how the registry is reached from the hosts' folders once for each
// credential, as CRI does.
func New(ctx context.Context, name string, folders []string, w *Transports, credentials []engineapi.Credential) *Client {
	r := &Client{name: name, folders: folders, credentials: credentials, header: http.Header{}}
	if w.agent != "" {
		r.header.Set("User-Agent", w.agent)
	}
	r.hosts = func(access docker.AuthorizerOpt) docker.RegistryHosts {
		return w.once(config.ConfigureHosts(ctx, config.HostOptions{
			HostDir:        hostDir(folders),
			UpdateClient:   w.adopt,
			AuthorizerOpts: []docker.AuthorizerOpt{access},
		}))
	}
	return r
}

// once has containerd's client use the same connections and tokens for all requests of
// a pull: it configures the hosts anew for each.
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

// Resolve asks what the image's name stands for.
func (r *Client) Resolve(ctx context.Context) (ocispec.Descriptor, error) {
	var target ocispec.Descriptor
	err := r.With(func(resolver remotes.Resolver) (err error) {
		_, target, err = resolver.Resolve(ctx, r.name)
		return err
	})
	return target, err
}

// With calls do with a way in: one that was good before, or else one credential after
// the other until do is not refused. A token that was good before may have run out
// without a word: one that is refused is asked for anew, once.
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

// credential is whose turn it is. Like CRI it is for whatever host asks, mirrors
// included: whoever set up the mirror for this registry trusts it that far.
func (r *Client) credential() func(string) (string, string, error) {
	return func(string) (string, string, error) {
		if r.tried >= len(r.credentials) {
			return "", "", nil
		}
		c := r.credentials[r.tried]
		switch {
		case c.IdentityToken != "":
			return "", c.IdentityToken, nil
		case c.Username == "":
			return "", "", nil // a password alone would be taken for a token
		}
		return c.Username, c.Password, nil
	}
}

// mayBeDenied reports whether other credentials may be let in. Some registries say of
// what one may not see that it is not there.
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

// StatusOf is what the registry answered, or 0.
func StatusOf(err error) int {
	if s, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		return s.StatusCode
	}
	return 0
}
