package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// parts is what an image consists of on this platform.
type parts struct {
	target   ocispec.Descriptor // the index, or the manifest itself
	manifest ocispec.Descriptor
	config   ocispec.Descriptor
	others   []ocispec.Descriptor // of the manifest that are no layers; images have none
	layers   []ocispec.Descriptor
	diffs    []digest.Digest // of the layers when they are not compressed
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
// it: by fetching, or by looking for it. What a registry may not have the node do fails
// with an *Error before it is done.
func (e *Engine) partsOf(ctx context.Context, target ocispec.Descriptor, get func(context.Context, ocispec.Descriptor) error) (parts, error) {
	p := parts{target: target}
	var err error
	if p.manifest, err = e.manifestOf(ctx, target, get); err != nil {
		return parts{}, err
	}
	var layers []ocispec.Descriptor
	if p.config, layers, err = e.readManifest(ctx, p.manifest); err != nil {
		return parts{}, err
	}
	for _, l := range layers {
		if images.IsLayerType(l.MediaType) {
			p.layers = append(p.layers, l)
		} else {
			p.others = append(p.others, l)
		}
	}
	if err := get(ctx, p.config); err != nil {
		return parts{}, err
	}
	if p.diffs, err = e.diffs(ctx, p); err != nil {
		return parts{}, err
	}
	p.chain = identity.ChainIDs(slices.Clone(p.diffs))
	return p, nil
}

// manifestOf is the manifest that the target is, or that its indexes have for this
// platform.
func (e *Engine) manifestOf(ctx context.Context, target ocispec.Descriptor, get func(context.Context, ocispec.Descriptor) error) (ocispec.Descriptor, error) {
	found := target
	for range indexesAtMost + 1 {
		if err := checkDocument(found); err != nil {
			return ocispec.Descriptor{}, err
		}
		if err := get(ctx, found); err != nil {
			return ocispec.Descriptor{}, err
		}
		switch {
		case images.IsManifestType(found.MediaType):
			return found, nil
		case !images.IsIndexType(found.MediaType):
			return ocispec.Descriptor{}, engineapi.Errorf(engineapi.Other, "it is no image, but %s", engineapi.Quote(found.MediaType))
		}
		var err error
		if found, err = e.choose(ctx, found); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	return ocispec.Descriptor{}, engineapi.Errorf(engineapi.Corrupt, "its indexes are nested more than %d deep; push it again", indexesAtMost)
}

// choose is the manifest of an index that CRI would take, too.
func (e *Engine) choose(ctx context.Context, index ocispec.Descriptor) (ocispec.Descriptor, error) {
	all, err := e.readIndex(ctx, index)
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
		return ocispec.Descriptor{}, engineapi.Errorf(engineapi.WrongPlatform, "there is none for %s, only for %s; push one for this node's platform, or keep the pod from this node",
			platforms.Format(platforms.DefaultSpec()), engineapi.Quote(strings.Join(others, ", ")))
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

// diffs reads from the configuration what the layers are when they are not compressed.
func (e *Engine) diffs(ctx context.Context, p parts) ([]digest.Digest, error) {
	var config struct {
		RootFS struct {
			DiffIDs bounded[digest.Digest] `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := e.read(ctx, p.config, &config); err != nil {
		return nil, err
	}
	if len(config.RootFS.DiffIDs) != len(p.layers) {
		return nil, engineapi.Errorf(engineapi.Corrupt, "it has %d layers, and a configuration for %d; push it again", len(p.layers), len(config.RootFS.DiffIDs))
	}
	for _, d := range config.RootFS.DiffIDs {
		if err := d.Validate(); err != nil {
			return nil, engineapi.Errorf(engineapi.Corrupt, "its configuration has a layer %s, which is no digest (%w); push it again", engineapi.Quote(d.String()), err)
		}
	}
	return config.RootFS.DiffIDs, nil
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
