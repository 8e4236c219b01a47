package engine

import (
	"context"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/diskspace"
	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
	"github.com/edgehub-io/edgehub/imagepull/engine/lease"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// unpackedFactor is how much room a layer is taken to need unpacked, for each byte
// compressed. All layers on Docker Hub in 2017 were 47 TB compressed and 167 TB
// unpacked, 3.5 for one (N. Zhao et al., "Large-Scale Analysis of the Docker Hub
// Dataset", IEEE CLUSTER 2019).
const unpackedFactor = 3.5

// need is what an image takes that is not here yet: bytes to fetch, and what they
// become when they are unpacked.
type need struct {
	fetched  int64
	unpacked size
}

// checkSpace fails with NoSpace if what is missing of an image will not fit. Where
// containerd's folders cannot be looked at from here, it is left to containerd.
func (e *Engine) checkSpace(ctx context.Context, n node, p imagecontent.Content, unpacked int) error {
	need, err := e.missing(ctx, p, unpacked)
	if err != nil {
		return err
	}
	if need.fetched+need.unpacked.bytes == 0 {
		return nil
	}
	content, err := diskspace.At(diskspace.Visible(ctx, e.opts.Address, n.content))
	if err != nil {
		e.log.Info("room on disk cannot be looked at; the pull is tried without", "folder", n.content, "err", err)
		return nil
	}
	snapshots, err := diskspace.At(diskspace.Visible(ctx, e.opts.Address, n.snapshots))
	if err != nil {
		e.log.Info("room on disk cannot be looked at; the pull is tried without", "folder", n.snapshots, "err", err)
		return nil
	}
	if needed := need.unpacked.inodes; needed > 0 && needed > snapshots.AvailableInodes() {
		return engineapi.Errorf(engineapi.NoSpace, "it needs more than %d inodes at %s, where %d of %d are free, and %d%% are to stay free; remove images that are not needed",
			needed, n.snapshots, snapshots.Inodes, snapshots.TotalInodes, diskspace.InodesFree)
	}
	if content.ID == snapshots.ID {
		return diskspace.Fits(n.content, content, need.fetched+need.unpacked.bytes, e.opts.MinFree)
	}
	if err := diskspace.Fits(n.content, content, need.fetched, e.opts.MinFree); err != nil {
		return err
	}
	return diskspace.Fits(n.snapshots, snapshots, need.unpacked.bytes, e.opts.MinFree)
}

// missing sums up what is not here, half of a blob included, and what is known of
// layers that were too large before.
func (e *Engine) missing(ctx context.Context, p imagecontent.Content, unpacked int) (need, error) {
	var n need
	known := map[digest.Digest]size{}
	for _, blob := range slices.Concat(p.Others, p.Layers[unpacked:]) {
		if _, counted := known[blob.Digest]; counted {
			continue
		}
		there, atLeast, err := e.there(ctx, blob)
		if err != nil {
			return need{}, err
		}
		n.fetched += blob.Size - there
		known[blob.Digest] = atLeast
	}
	n.unpacked = toUnpack(p.Layers[unpacked:], known)
	return n, nil
}

// there is how many bytes of a blob are here, and what it takes unpacked at least, if
// that has shown.
func (e *Engine) there(ctx context.Context, blob ocispec.Descriptor) (int64, size, error) {
	info, err := e.store().Info(ctx, blob.Digest)
	switch {
	case err == nil:
		return blob.Size, readSize(info.Labels[sizeLabel]), nil
	case !errdefs.IsNotFound(err):
		return 0, size{}, err
	}
	s, err := e.store().Status(ctx, lease.IngestRef(blob))
	if err != nil {
		return 0, size{}, lease.UnlessNotFound(err)
	}
	return min(s.Offset, blob.Size), size{}, nil
}

// toUnpack sums up what layers take unpacked, one that is there twice twice.
func toUnpack(layers []ocispec.Descriptor, known map[digest.Digest]size) size {
	var sum size
	for _, l := range layers {
		sum.bytes += max(int64(float64(l.Size)*unpackedFactor), known[l.Digest].bytes)
		sum.inodes += known[l.Digest].inodes
	}
	return sum
}
