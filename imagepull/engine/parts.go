package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// parts is what an image consists of on this platform.
type parts struct {
	target   ocispec.Descriptor // the index, or the manifest itself
	manifest ocispec.Descriptor
	config   ocispec.Descriptor
	others   []ocispec.Descriptor // of the manifest that are no layers; images have none
	layers   []ocispec.Descriptor
	chain    []digest.Digest // the names of the layers' snapshots
}

// blobs are those that count as the image's size.
func (p parts) blobs() []ocispec.Descriptor {
	return slices.Concat([]ocispec.Descriptor{p.config}, p.others, p.layers)
}

func (p parts) size() int64 {
	var m meter
	m.expect(p.blobs())
	return m.sum.Total
}

// partsOf reads what an image consists of. Before a blob is read get makes sure of
// it: by fetching, or by looking for it.
func (e *Engine) partsOf(ctx context.Context, target ocispec.Descriptor, get func(context.Context, ocispec.Descriptor) error) (parts, error) {
	p := parts{target: target, manifest: target}
	for {
		if err := get(ctx, p.manifest); err != nil {
			return parts{}, err
		}
		if !images.IsIndexType(p.manifest.MediaType) {
			break
		}
		var err error
		if p.manifest, err = e.choose(ctx, p.manifest); err != nil {
			return parts{}, err
		}
	}
	if !images.IsManifestType(p.manifest.MediaType) {
		return parts{}, errorf(Other, "it is no image, but %s", p.manifest.MediaType)
	}
	blob, err := content.ReadBlob(ctx, e.store(), p.manifest)
	if err != nil {
		return parts{}, err
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(blob, &manifest); err != nil {
		return parts{}, errorf(Corrupt, "its manifest %s cannot be read (%w)", p.manifest.Digest, err)
	}
	p.config = manifest.Config
	for _, l := range manifest.Layers {
		if images.IsLayerType(l.MediaType) {
			p.layers = append(p.layers, l)
		} else {
			p.others = append(p.others, l)
		}
	}
	if err := get(ctx, p.config); err != nil {
		return parts{}, err
	}
	p.chain, err = e.chain(ctx, p)
	return p, err
}

// choose is the manifest of an index that CRI would take, too.
func (e *Engine) choose(ctx context.Context, index ocispec.Descriptor) (ocispec.Descriptor, error) {
	all, err := images.Children(ctx, e.store(), index)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	here := platforms.Default()
	var others []string
	suitable := slices.DeleteFunc(slices.Clone(all), func(d ocispec.Descriptor) bool {
		if d.Platform == nil || here.Match(*d.Platform) {
			return false
		}
		if d.Platform.OS != "unknown" { // attestations are listed so
			others = append(others, platforms.Format(*d.Platform))
		}
		return true
	})
	if len(suitable) == 0 {
		return ocispec.Descriptor{}, errorf(WrongPlatform, "there is none for %s, only for %s; push one for this node's platform, or keep the pod from this node",
			platforms.Format(platforms.DefaultSpec()), quote(strings.Join(others, ", ")))
	}
	slices.SortStableFunc(suitable, func(a, b ocispec.Descriptor) int {
		switch {
		case a.Platform == nil && b.Platform == nil:
			return 0
		case b.Platform == nil || a.Platform != nil && here.Less(*a.Platform, *b.Platform):
			return -1
		case a.Platform == nil || here.Less(*b.Platform, *a.Platform):
			return 1
		}
		return 0
	})
	return suitable[0], nil
}

// chain reads from the configuration what the snapshots of the layers are called.
func (e *Engine) chain(ctx context.Context, p parts) ([]digest.Digest, error) {
	blob, err := content.ReadBlob(ctx, e.store(), p.config)
	if err != nil {
		return nil, err
	}
	var config struct {
		RootFS ocispec.RootFS `json:"rootfs"`
	}
	if err := json.Unmarshal(blob, &config); err != nil {
		return nil, errorf(Corrupt, "its configuration %s cannot be read (%w)", p.config.Digest, err)
	}
	if len(config.RootFS.DiffIDs) != len(p.layers) {
		return nil, errorf(Corrupt, "it has %d layers, and a configuration for %d; push it again", len(p.layers), len(config.RootFS.DiffIDs))
	}
	return identity.ChainIDs(config.RootFS.DiffIDs), nil
}

// look is a get for partsOf that fetches nothing. It fails with errdefs.ErrNotFound.
func (e *Engine) look(ctx context.Context, blob ocispec.Descriptor) error {
	_, err := e.store().Info(ctx, blob.Digest)
	return err
}

// unpacked counts the layers, from the lowest up, that have been unpacked.
func (e *Engine) unpacked(ctx context.Context, n node, p parts) (int, error) {
	for i, name := range slices.Backward(p.chain) {
		_, err := e.client.SnapshotService(n.snapshotter).Stat(ctx, name.String())
		if err == nil {
			return i + 1, nil
		}
		if !errdefs.IsNotFound(err) {
			return 0, err
		}
	}
	return 0, nil
}
