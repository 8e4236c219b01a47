package engine

import (
	"context"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/lease"
	"github.com/edgehub-io/edgehub/imagepull/engine/registry"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// A blob that containerd is still closing is gone after discardTries times discardWait.
const (
	discardTries = 50
	discardWait  = 100 * time.Millisecond
)

// A blob of CRI that has not grown at minRate for abandonedAfter is not waited for, and
// all of them together for awaitAtMost in one pull: their registry may be one that means
// to keep this pull, and all that are queued behind it, from going on.
const (
	abandonedAfter = 10 * time.Second
	awaitAtMost    = time.Hour
	lookAgain      = 500 * time.Millisecond
)

// fetch gets a blob into containerd's store, from where it was left off.
//
// What is left of a blob may be wrong, after a loss of power, say. That shows only
// when the whole is there; it is fetched anew then, once.
func (p *pull) fetch(ctx context.Context, blob ocispec.Descriptor) error {
	blob.URLs = nil
	if err := p.awaitCRI(ctx, blob); err != nil {
		return err
	}
	resumed, err := p.fetchOnce(ctx, blob)
	if !errdefs.IsFailedPrecondition(err) {
		return err
	}
	if err := p.discard(ctx, blob); err != nil {
		return err
	}
	if resumed {
		p.engine.log.Warn("what was left of a blob is wrong; it is fetched anew", "image", p.name, "blob", blob.Digest)
		if _, err = p.fetchOnce(ctx, blob); !errdefs.IsFailedPrecondition(err) {
			return err
		}
		if err := p.discard(ctx, blob); err != nil {
			return err
		}
	}
	return engineapi.Errorf(engineapi.Corrupt, "what the registry sends as %s is something else (%s); push it again, or look at what stands between here and the registry",
		blob.Digest, p.registry.Plain(err))
}

// fetchOnce reports whether some of the blob was there already, or came over another
// connection than the rest. It fails with errdefs.ErrFailedPrecondition if the blob
// is not what it should be.
func (p *pull) fetchOnce(ctx context.Context, blob ocispec.Descriptor) (resumed bool, err error) {
	w, err := content.OpenWriter(ctx, p.engine.store(), content.WithRef(lease.IngestRef(blob)), content.WithDescriptor(blob))
	if errdefs.IsAlreadyExists(err) {
		p.progress.set(blob, blob.Size)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = w.Close() }() // what has been written stays; the error that matters is the caller's
	s, err := w.Status()
	if err != nil {
		return false, err
	}
	d := &download{pull: p, blob: blob, to: w, offset: s.Offset}
	p.progress.set(blob, s.Offset)
	if err := d.run(registry.WithBlob(ctx, blob)); err != nil {
		return s.Offset > 0 || d.cuts > 0, err
	}
	if err := w.Commit(ctx, blob.Size, blob.Digest); err != nil && !errdefs.IsAlreadyExists(err) {
		return s.Offset > 0 || d.cuts > 0, err
	}
	return false, nil
}

// discard forgets what there is of a blob that is not complete. containerd may not have
// closed it yet, and fails to remove it then.
func (p *pull) discard(ctx context.Context, blob ocispec.Descriptor) error {
	p.progress.set(blob, 0)
	for tries := 0; ; tries++ {
		err := lease.UnlessNotFound(p.engine.store().Abort(ctx, lease.IngestRef(blob)))
		if err == nil || isUnavailable(err) || tries == discardTries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(discardWait):
		}
	}
}

// awaitCRI waits while CRI is fetching the blob: on a thin line the same bytes must not
// come twice at once.
func (p *pull) awaitCRI(ctx context.Context, blob ocispec.Descriptor) error {
	var theirs ingest
	for {
		s, err := p.engine.store().Status(ctx, remotes.MakeRefKey(ctx, blob))
		if errdefs.IsNotFound(err) {
			return nil // it is complete, or nobody fetches it
		}
		if err != nil {
			return err
		}
		if p.awaited >= awaitAtMost || !theirs.isComing(s, blob, time.Now()) {
			return nil
		}
		p.awaited += lookAgain
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookAgain):
		}
	}
}

// ingest is what CRI has of a blob, looked at each lookAgain.
type ingest struct {
	seen     bool
	offset   int64
	measured registry.Pace
}

// isComing reports whether CRI goes on fetching the blob. If its size is another one, it
// is an image that lies about the blob's digest: anybody may have CRI pull such an image.
func (i *ingest) isComing(s content.Status, blob ocispec.Descriptor, now time.Time) bool {
	grown, first := s.Offset-i.offset, !i.seen
	i.seen, i.offset = true, s.Offset
	switch {
	case s.Total > 0 && s.Total != blob.Size:
		return false
	case first:
		return now.Sub(s.UpdatedAt) <= abandonedAfter
	}
	return !i.measured.Slow(lookAgain, int(grown), abandonedAfter)
}
