package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/diskspace"
	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
	"github.com/edgehub-io/edgehub/imagepull/engine/lease"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// sizeLabel is the label of a layer's blob that records, for later pulls, how much space the
// layer takes unpacked at least. containerd removes it with the blob.
const sizeLabel = "edgehub.io/unpacked-at-least"

// size is the space that an unpacked layer takes.
type size struct{ bytes, inodes int64 }

func (s size) String() string { return fmt.Sprintf("%d %d", s.bytes, s.inodes) }

// readSize parses a sizeLabel. It returns the zero value if the label is invalid.
func readSize(label string) size {
	var s size
	if _, err := fmt.Sscanf(label, "%d %d", &s.bytes, &s.inodes); err != nil || s.bytes < 0 || s.inodes < 0 {
		return size{}
	}
	return s
}

// need is the least space that the missing parts of an image take.
type need struct {
	fetched  int64 // bytes to fetch
	unpacked size
}

// checkSpace fails with NoSpace if the missing parts of an image cannot fit. If this process cannot
// see containerd's folders, it passes. What it passes may still not fit: that ends when a layer is
// unpacked (unpack.go).
func (e *Engine) checkSpace(ctx context.Context, n node, p imagecontent.Content, unpacked int) error {
	need, err := e.missing(ctx, p, unpacked)
	if err != nil || need.fetched+need.unpacked.bytes == 0 {
		return err
	}
	content, okContent := e.spaceAt(ctx, n.content)
	snapshots, okSnapshots := e.spaceAt(ctx, n.snapshots)
	if !okContent || !okSnapshots {
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

// HasRoom reports whether as much of containerd's file systems is free as a pull would leave free. It
// passes what this process cannot see.
func (e *Engine) HasRoom(ctx context.Context) (bool, error) {
	brief, cancel := briefContext(ctx)
	defer cancel()
	n, err := e.node(brief)
	if err != nil {
		return false, e.failure(ctx, "", err)
	}
	for _, folder := range []string{n.content, n.snapshots} {
		s, err := diskspace.At(diskspace.Visible(brief, e.opts.Address, folder))
		if err == nil && (s.Available(e.opts.MinFree) < 0 || s.AvailableInodes() < 0) {
			return false, nil
		}
	}
	return true, nil
}

// Disk returns the folder of containerd in which images lie, and the space there. It fails if containerd
// does not answer.
func (e *Engine) Disk(ctx context.Context) (folder string, space diskspace.Space, err error) {
	r, err := e.roots(ctx)
	if err == nil {
		space, err = diskspace.At(diskspace.Visible(ctx, e.opts.Address, r.content))
	}
	return r.content, space, err
}

func (e *Engine) spaceAt(ctx context.Context, folder string) (diskspace.Space, bool) {
	s, err := diskspace.At(diskspace.Visible(ctx, e.opts.Address, folder))
	if err != nil {
		e.log.Info("room on disk cannot be looked at; the pull is tried without", "folder", folder, "err", err)
	}
	return s, err == nil
}

// missing sums up the parts of an image that are not on the node, where unpacked layers are. It
// includes what is known of layers that were too large before.
func (e *Engine) missing(ctx context.Context, p imagecontent.Content, unpacked int) (need, error) {
	var n need
	known := map[digest.Digest]size{}
	for _, blob := range slices.Concat(p.Others, p.Layers[unpacked:]) {
		if _, counted := known[blob.Digest]; counted {
			continue
		}
		present, atLeast, err := e.present(ctx, blob)
		if err != nil {
			return need{}, err
		}
		n.fetched += blob.Size - present
		known[blob.Digest] = atLeast
	}
	n.unpacked = toUnpack(p.Layers[unpacked:], known)
	return n, nil
}

// present returns how many bytes of a blob are on the node, and its minimal unpacked size, if
// known.
func (e *Engine) present(ctx context.Context, blob ocispec.Descriptor) (int64, size, error) {
	info, err := e.store.Info(ctx, blob.Digest)
	switch {
	case err == nil:
		return blob.Size, readSize(info.Labels[sizeLabel]), nil
	case !errdefs.IsNotFound(err):
		return 0, size{}, err
	}
	s, err := e.store.Status(ctx, lease.IngestRef(blob))
	if err != nil {
		return 0, size{}, lease.UnlessNotFound(err)
	}
	return min(s.Offset, blob.Size), size{}, nil
}

// toUnpack sums up the least unpacked sizes of layers. It counts duplicates, which are unpacked twice.
//
// Unpacked, a layer takes about its size in the registry if it is not compressed, or cannot be
// compressed, as media and encrypted files. Most take more (all on Docker Hub in 2017 together 3.5
// times as much: N. Zhao et al., "Large-Scale Analysis of the Docker Hub Dataset", IEEE CLUSTER 2019),
// but a mean would refuse images for which there is room, and which CRI pulls.
func toUnpack(layers []ocispec.Descriptor, known map[digest.Digest]size) size {
	var sum size
	for _, l := range layers {
		sum.bytes += max(l.Size, known[l.Digest].bytes)
		sum.inodes += known[l.Digest].inodes
	}
	return sum
}
