package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/labels"
	"github.com/containerd/containerd/v2/pkg/rootfs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/diskspace"
	"github.com/edgehub-io/edgehub/imagepull/engine/imagecontent"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

const (
	// watchSpaceEvery bounds how far a layer exceeds the limit: by 50 MB on a fast disk.
	watchSpaceEvery = 100 * time.Millisecond
	// unpackLeaves is the percentage that stays free even if MinFree is less: a layer must not
	// fill the node's disk to the last byte.
	unpackLeaves = 1
	// unpackAtMost is how long one layer may take. A gigabyte takes some minutes on an SD card.
	// A layer that writes the same file over and over takes no space, but may never end.
	unpackAtMost = time.Hour
)

var errFull = errors.New("the layer leaves too little room")

// unpack creates the missing snapshots. If containerd supports it, they are flushed to disk first,
// so that an image that was reported ready has no empty files after a loss of power.
//
// A compressed megabyte can become a gigabyte, so unpack watches the disk space. It removes a layer
// that takes too much, and records the space it has taken as a label of the layer's blob: the layer
// is not unpacked again before more space is free.
func (e *Engine) unpack(ctx context.Context, n node, p imagecontent.Content) error {
	u := &unpacking{
		Snapshotter: e.client.SnapshotService(n.snapshotter), engine: e,
		folder: n.snapshots, visible: diskspace.Visible(ctx, e.opts.Address, n.snapshots),
	}
	for i, layer := range p.Layers {
		l := rootfs.Layer{Diff: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: p.Diffs[i]}, Blob: layer}
		made, err := rootfs.ApplyLayerWithOpts(ctx, l, p.Diffs[:i:i], u, u, nil, []diff.ApplyOpt{diff.WithSyncFs(true)})
		if err != nil {
			e.leases.Collect(ctx) // removes what there is of the layer
			return fmt.Errorf("unpack: %w", err)
		}
		if !made {
			continue
		}
		if err := e.label(ctx, layer, labels.LabelUncompressed, p.Diffs[i].String()); err != nil {
			return err
		}
	}
	if len(p.Chain) == 0 {
		return nil
	}
	return e.label(ctx, p.Config, "containerd.io/gc.ref.snapshot."+n.snapshotter, p.Chain[len(p.Chain)-1].String())
}

func (e *Engine) label(ctx context.Context, blob ocispec.Descriptor, name, value string) error {
	_, err := e.store.Update(ctx, content.Info{Digest: blob.Digest, Labels: map[string]string{name: value}}, "labels."+name)
	return err
}

// unpacking is a snapshotter and an applier of layers that watches the disk space.
type unpacking struct {
	snapshots.Snapshotter
	engine  *Engine
	folder  string // of the snapshotter, as containerd sees it
	visible string // the same folder, as this process sees it
	key     string // of the latest snapshot
}

func (u *unpacking) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	u.key = key
	return u.Snapshotter.Prepare(ctx, key, parent, opts...)
}

// Apply fails with NoSpace if the layer takes too much space. It does not cancel ctx, so that the
// caller can remove the layer.
func (u *unpacking) Apply(ctx context.Context, layer ocispec.Descriptor, mounts []mount.Mount, opts ...diff.ApplyOpt) (ocispec.Descriptor, error) {
	brief, cancel := context.WithTimeoutCause(ctx, unpackAtMost, engineapi.Errorf(engineapi.Other, "its layer %s is not unpacked after %v; make it smaller", layer.Digest, unpackAtMost))
	defer cancel()
	watched, stop := u.watch(brief)
	made, err := u.engine.client.DiffService().Apply(watched, layer, mounts, opts...)
	stop()
	cause := context.Cause(watched)
	switch {
	case err == nil || ctx.Err() != nil:
		return made, err
	case errors.Is(cause, errFull) || strings.Contains(err.Error(), syscall.ENOSPC.Error()):
		return made, u.tooLarge(ctx, layer)
	case brief.Err() != nil:
		return made, context.Cause(brief)
	}
	return made, err
}

// watch cancels the context that it returns with errFull once too little space is left. That may be
// so from the start: each of the layers before may have been unpacked between two looks.
func (u *unpacking) watch(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if u.isFull() {
		cancel(errFull)
	}
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(watchSpaceEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if u.isFull() {
				cancel(errFull)
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		done.Wait()
	}
}

// isFull reports whether too little space is left. If it cannot find out, containerd will notice.
func (u *unpacking) isFull() bool {
	s, err := diskspace.At(u.visible)
	return err == nil && (s.Available(max(u.engine.opts.MinFree, unpackLeaves)) < 0 || s.AvailableInodes() < 0)
}

// tooLarge records the space that the layer has taken.
func (u *unpacking) tooLarge(ctx context.Context, layer ocispec.Descriptor) error {
	brief, cancel := briefContext(ctx)
	defer cancel()
	var took size
	if usage, err := u.Usage(brief, u.key); err == nil {
		took = size{bytes: usage.Size, inodes: usage.Inodes}
		if err := u.engine.label(brief, layer, sizeLabel, took.String()); err != nil {
			return err
		}
	}
	return engineapi.Errorf(engineapi.NoSpace, "its layer %s leaves too little room at %s: it takes more than %s and %d files unpacked; remove what is not needed on the node, images or logs, or give it more room",
		layer.Digest, u.folder, engineapi.Amount(took.bytes), took.inodes)
}
