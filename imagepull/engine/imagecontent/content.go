// Package imagecontent reads the index, manifest and configuration of an image for this platform from
// containerd's store. They come from a registry, so their content is bounded and checked before
// anything that they refer to is fetched.
package imagecontent

import (
	"context"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Reader reads from containerd's store.
type Reader struct{ Store content.Store }

// Content is the content of an image for this platform.
type Content struct {
	Target   ocispec.Descriptor // the index, or the manifest itself
	Manifest ocispec.Descriptor
	Config   ocispec.Descriptor
	Others   []ocispec.Descriptor // blobs of the manifest that are no layers; images have none
	Layers   []ocispec.Descriptor
	Diffs    []digest.Digest  // of the decompressed layers
	Chain    []digest.Digest  // the names of the layers' snapshots
	Platform ocispec.Platform // as the configuration says, which may be nothing
}

// Blobs returns the blobs that count for the image's size.
func (p Content) Blobs() []ocispec.Descriptor {
	return slices.Concat([]ocispec.Descriptor{p.Config}, p.Others, p.Layers)
}

// Size returns the size of all Blobs. Duplicates count once.
func (p Content) Size() (sum int64) {
	counted := map[digest.Digest]bool{}
	for _, b := range p.Blobs() {
		if !counted[b.Digest] {
			counted[b.Digest] = true
			sum += b.Size
		}
	}
	return sum
}

// PartsOf reads the content of an image. It calls get for each blob before it reads the blob; get
// fetches the blob, or checks that it is on the node. PartsOf fails with an *Error if the image
// exceeds a bound.
func (r Reader) PartsOf(ctx context.Context, target ocispec.Descriptor, get func(context.Context, ocispec.Descriptor) error) (Content, error) {
	p := Content{Target: target}
	var err error
	if p.Manifest, err = r.manifestOf(ctx, target, get); err != nil {
		return Content{}, err
	}
	var layers []ocispec.Descriptor
	if p.Config, layers, err = r.readManifest(ctx, p.Manifest); err != nil {
		return Content{}, err
	}
	for _, l := range layers {
		if images.IsLayerType(l.MediaType) {
			p.Layers = append(p.Layers, l)
		} else {
			p.Others = append(p.Others, l)
		}
	}
	if err := get(ctx, p.Config); err != nil {
		return Content{}, err
	}
	config, err := r.readConfig(ctx, p.Config)
	if err != nil {
		return Content{}, err
	}
	if err := checkPlatform(p, config.Platform); err != nil {
		return Content{}, err
	}
	if p.Diffs, err = diffs(p, config); err != nil {
		return Content{}, err
	}
	p.Platform = config.Platform
	p.Chain = identity.ChainIDs(slices.Clone(p.Diffs))
	return p, nil
}

// manifestOf returns the target if it is a manifest, or else the manifest of its indexes for this
// platform.
func (r Reader) manifestOf(ctx context.Context, target ocispec.Descriptor, get func(context.Context, ocispec.Descriptor) error) (ocispec.Descriptor, error) {
	found := target
	for range indexesAtMost + 1 {
		isManifest := images.IsManifestType(found.MediaType)
		if !isManifest && !images.IsIndexType(found.MediaType) { // it would be requested as a blob
			return ocispec.Descriptor{}, engineapi.Errorf(engineapi.Other, "it is no image, but %s, which containerd does not pull; push an image", engineapi.Quote(found.MediaType))
		}
		if err := checkDocument(found); err != nil {
			return ocispec.Descriptor{}, err
		}
		if err := get(ctx, found); err != nil {
			return ocispec.Descriptor{}, err
		}
		if isManifest {
			return found, nil
		}
		var err error
		if found, err = r.choose(ctx, found); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	return ocispec.Descriptor{}, engineapi.Errorf(engineapi.Corrupt, "its indexes are nested more than %d deep; push or save it again", indexesAtMost)
}

// choose returns the manifest of an index that CRI would choose, too.
func (r Reader) choose(ctx context.Context, index ocispec.Descriptor) (ocispec.Descriptor, error) {
	all, err := r.readIndex(ctx, index)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	here := platforms.Default()
	var others []string
	suitable := slices.DeleteFunc(slices.Clone(all), func(d ocispec.Descriptor) bool {
		if d.Platform == nil || here.Match(*d.Platform) {
			return false
		}
		if d.Platform.OS != "unknown" { // as for attestations
			others = append(others, platforms.Format(*d.Platform))
		}
		return true
	})
	if len(suitable) == 0 {
		only := ""
		if len(others) > 0 {
			only = ", only for " + engineapi.Quote(strings.Join(others, ", "))
		}
		return ocispec.Descriptor{}, engineapi.Errorf(engineapi.WrongPlatform, "there is none for %s%s; push one for this node's platform, or keep the pod from this node",
			platforms.Format(platforms.DefaultSpec()), only)
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

// checkPlatform fails if an index does not give the platform of the chosen manifest, and the
// configuration is for another platform than this node's: containerd finds no image then
// (images.Manifest). Like containerd, it accepts any platform of a manifest without an index.
func checkPlatform(p Content, config ocispec.Platform) error {
	if p.Manifest.Digest == p.Target.Digest || p.Manifest.Platform != nil || platforms.Default().Match(config) {
		return nil
	}
	return engineapi.Errorf(engineapi.WrongPlatform, "its index has an image without a platform, which containerd takes, and which is for %s and not for %s; push an index that gives the platform of each image, or keep the pod from this node",
		engineapi.Quote(platforms.Format(config)), platforms.Format(platforms.DefaultSpec()))
}

// diffs returns the digests of the decompressed layers.
func diffs(p Content, c config) ([]digest.Digest, error) {
	if len(c.RootFS.DiffIDs) != len(p.Layers) {
		return nil, engineapi.Errorf(engineapi.Corrupt, "it has %d layers, and a configuration for %d; push or save it again", len(p.Layers), len(c.RootFS.DiffIDs))
	}
	for _, d := range c.RootFS.DiffIDs {
		if err := d.Validate(); err != nil {
			return nil, engineapi.Errorf(engineapi.Corrupt, "its configuration has a layer %s, which is no digest (%w); push or save it again", engineapi.Quote(d.String()), err)
		}
	}
	return c.RootFS.DiffIDs, nil
}
