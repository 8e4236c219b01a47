package imagetar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/containerd/platforms"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// configLimit bounds a configuration that is read, in bytes, as nodes do.
const configLimit = 4 << 20

// Source resolves and reads images, with the logins of docker and podman. It is for one goroutine.
type Source struct {
	puller    *remote.Puller
	transport *http.Transport
	resolved  map[string]*Image // by full name
}

// NewSource returns one that connects to nothing yet.
func NewSource(userAgent string) (*Source, error) {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	puller, err := remote.NewPuller(remote.WithTransport(t), remote.WithUserAgent(userAgent), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	return &Source{puller: puller, transport: t, resolved: map[string]*Image{}}, err
}

// Close closes idle connections.
func (s *Source) Close() { s.transport.CloseIdleConnections() }

// Resolve returns an image, under a name as pods have it, with what nodes of the platforms pull of it. It fails if it has nothing for one
// of them. Two names of one image are one Image, with the platforms of the first.
func (s *Source) Resolve(ctx context.Context, image string, wanted []Platform) (*Image, error) {
	full, err := engineapi.Normalize(image)
	if err != nil {
		return nil, err
	}
	if i := s.resolved[full]; i != nil {
		return i, nil
	}
	ref, err := name.ParseReference(full)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", full, err)
	}
	top, err := s.puller.Get(ctx, ref)
	if denied, ok := errors.AsType[*transport.Error](err); ok && (denied.StatusCode == http.StatusUnauthorized || denied.StatusCode == http.StatusForbidden) {
		err = fmt.Errorf("%w; is there a login, as by docker login %s?", err, ref.Context().RegistryStr())
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", full, err)
	}
	d := ocispec.Descriptor{MediaType: string(top.MediaType), Digest: digest.Digest(top.Digest.String()), Size: top.Size}
	i := &Image{Name: full, Digest: d.Digest, source: s, repo: ref.Context(), blobs: []blob{{d, top.Manifest}}}
	for _, p := range wanted {
		if err := i.add(ctx, d, p); err != nil {
			return nil, fmt.Errorf("image %s: %w", full, err)
		}
	}
	s.resolved[full] = i
	return i, nil
}

// add adds what nodes of a platform pull of an index or a manifest.
func (i *Image) add(ctx context.Context, d ocispec.Descriptor, p Platform) error {
	switch kind := types.MediaType(d.MediaType); {
	case kind.IsIndex():
		var index ocispec.Index
		if err := i.document(ctx, d, &index); err != nil {
			return err
		}
		chosen := p.choose(index.Manifests)
		if len(chosen) == 0 {
			return fmt.Errorf("it has no manifest for %s; it has %s", p, engineapi.Quote(platformsOf(index.Manifests)))
		}
		for _, d := range chosen {
			if err := i.add(ctx, d, p); err != nil {
				return err
			}
		}
		return nil
	case kind.IsImage():
		return i.addManifest(ctx, d, p)
	}
	return fmt.Errorf("it is no image, but %s", engineapi.Quote(d.MediaType))
}

// addManifest adds a manifest with its configuration and layers.
func (i *Image) addManifest(ctx context.Context, d ocispec.Descriptor, p Platform) error {
	var m ocispec.Manifest
	if err := i.document(ctx, d, &m); err != nil {
		return err
	}
	for _, part := range slices.Concat([]ocispec.Descriptor{m.Config}, m.Layers) {
		if strings.Contains(part.MediaType, ".foreign.") || strings.Contains(part.MediaType, ".nondistributable.") {
			return fmt.Errorf("its layer %s may not be in a file: it is of type %s, which nodes pull from elsewhere", part.Digest, engineapi.Quote(part.MediaType))
		}
		if err := i.addBlob(part, nil); err != nil {
			return err
		}
	}
	if d.Platform != nil {
		return nil
	}
	is, err := i.platformOf(ctx, m.Config.Digest)
	if err == nil && is.Architecture != "" && !p.matcher().Match(is) {
		err = fmt.Errorf("it has no manifest for %s; it is for %s", p, engineapi.Quote(platforms.Format(is)))
	}
	return err
}

// document reads an index or a manifest, and adds it.
func (i *Image) document(ctx context.Context, d ocispec.Descriptor, into any) error {
	at := i.find(d.Digest)
	if at < 0 {
		got, err := i.source.puller.Get(ctx, i.repo.Digest(d.Digest.String()))
		if err != nil {
			return err
		}
		if err := i.addBlob(d, got.Manifest); err != nil {
			return err
		}
		at = i.find(d.Digest)
	}
	if err := json.Unmarshal(i.blobs[at].content, into); err != nil {
		return fmt.Errorf("read %s: %w", d.Digest, err)
	}
	return nil
}

func (i *Image) find(d digest.Digest) int {
	return slices.IndexFunc(i.blobs, func(b blob) bool { return b.Digest == d })
}

// addBlob adds a blob, unless it is there. Its digest becomes a path in the tar.
func (i *Image) addBlob(d ocispec.Descriptor, content []byte) error {
	if d.Digest.Validate() != nil || d.Size < 0 {
		return fmt.Errorf("a manifest of it names a part without a digest and a size, %s", engineapi.Quote(d.Digest.String()))
	}
	if i.find(d.Digest) < 0 {
		i.blobs = append(i.blobs, blob{ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}, content})
	}
	return nil
}

// platformOf returns the platform in a configuration.
func (i *Image) platformOf(ctx context.Context, config digest.Digest) (ocispec.Platform, error) {
	var c ocispec.Image
	from, err := i.source.open(ctx, i.repo, config)
	if err != nil {
		return c.Platform, err
	}
	defer func() { _ = from.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(from, configLimit))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		err = fmt.Errorf("read its configuration: %w", err)
	}
	return c.Platform, err
}

// open returns a blob, whose end is an error if it is not what the digest says. The caller closes it.
func (s *Source) open(ctx context.Context, repo name.Repository, d digest.Digest) (io.ReadCloser, error) {
	layer, err := s.puller.Layer(ctx, repo.Digest(d.String()))
	if err != nil {
		return nil, err
	}
	return layer.Compressed()
}
