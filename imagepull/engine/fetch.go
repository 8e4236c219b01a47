package engine

import (
	"context"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A blob that containerd is still closing is gone after discardTries times discardWait.
const (
	discardTries = 50
	discardWait  = 100 * time.Millisecond
)

// fetch gets a blob into containerd's store, from where it was left off. The name of
// the ingest is the one that CRI uses: the two go on with each other's work, and do
// not fetch the same blob at the same time.
//
// What is left of a blob may be wrong, after a loss of power, say. That shows only
// when the whole is there; it is fetched anew then, once.
func (p *pull) fetch(ctx context.Context, blob ocispec.Descriptor) error {
	if blob.Size <= 0 {
		return errorf(Corrupt, "its registry gives no size for %s; push it again", blob.Digest)
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
	return errorf(Corrupt, "what the registry sends as %s is something else (%s); push it again, or look at what stands between here and the registry",
		blob.Digest, p.registry.plain(err))
}

// fetchOnce reports whether some of the blob was there already, or came over another
// connection than the rest. It fails with errdefs.ErrFailedPrecondition if the blob
// is not what it should be.
func (p *pull) fetchOnce(ctx context.Context, blob ocispec.Descriptor) (resumed bool, err error) {
	w, err := content.OpenWriter(ctx, p.engine.store(), content.WithRef(remotes.MakeRefKey(ctx, blob)), content.WithDescriptor(blob))
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
	in := &inflow{pull: p, blob: blob, to: w, offset: s.Offset}
	p.progress.set(blob, s.Offset)
	if err := in.run(ctx); err != nil {
		return s.Offset > 0 || in.cuts > 0, err
	}
	if err := w.Commit(ctx, blob.Size, blob.Digest); err != nil && !errdefs.IsAlreadyExists(err) {
		return s.Offset > 0 || in.cuts > 0, err
	}
	return false, nil
}

// discard forgets what there is of a blob that is not complete. containerd may not have
// closed it yet, and fails to remove it then.
func (p *pull) discard(ctx context.Context, blob ocispec.Descriptor) error {
	p.progress.set(blob, 0)
	for tries := 0; ; tries++ {
		err := unlessNotFound(p.engine.store().Abort(ctx, remotes.MakeRefKey(ctx, blob)))
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
