package engine

import (
	"context"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/imagepull/engine/lease"
	"github.com/edgehub-io/edgehub/imagepull/engine/registry"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// discard retries so often: containerd may still be closing the blob.
const (
	discardTries = 50
	discardWait  = 100 * time.Millisecond
)

// awaitCRI waits for a blob only while it has grown at MinRate within abandonedAfter, and for all
// blobs of one pull only awaitAtMost: the registry of CRI's pull may be slow on purpose, to hold up
// this pull and all that are queued behind it.
const (
	abandonedAfter = 10 * time.Second
	awaitAtMost    = time.Hour
	lookAgain      = 500 * time.Millisecond
)

// fetch fetches a blob into containerd's store, and labels it with the registry and the repository,
// as CRI's pulls do: mirrors that serve the content of containerd to other nodes, such as Spegel,
// find by these labels what came from a registry. A blob that was there is labeled, too.
func (p *pull) fetch(ctx context.Context, blob ocispec.Descriptor) error {
	if err := p.fetchBlob(ctx, blob); err != nil {
		return err
	}
	label, err := docker.AppendDistributionSourceLabel(p.engine.store, p.name)
	if err != nil {
		return err
	}
	_, err = label(ctx, blob)
	return err
}

// fetchBlob fetches a blob, and resumes from what an earlier pull has left. That may be wrong, for
// example after a loss of power, which shows only when the blob is complete. The blob is then
// fetched once more from the start.
func (p *pull) fetchBlob(ctx context.Context, blob ocispec.Descriptor) error {
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

// fetchOnce reports whether the blob came in several parts, of which one may be wrong. It fails
// with errdefs.ErrFailedPrecondition if the complete blob is wrong.
func (p *pull) fetchOnce(ctx context.Context, blob ocispec.Descriptor) (resumed bool, err error) {
	w, err := content.OpenWriter(ctx, p.engine.store, content.WithRef(lease.IngestRef(blob)), content.WithDescriptor(blob))
	if errdefs.IsAlreadyExists(err) {
		p.progress.set(blob, blob.Size)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = w.Close() }() // the written bytes stay; the error to return is another one
	s, err := w.Status()
	if err != nil {
		return false, err
	}
	d := &download{pull: p, blob: blob, to: w, offset: s.Offset}
	p.progress.set(blob, s.Offset)
	if err = d.run(registry.WithBlob(ctx, blob)); err == nil {
		err = w.Commit(ctx, blob.Size, blob.Digest)
	}
	if err == nil || errdefs.IsAlreadyExists(err) {
		return false, nil
	}
	return s.Offset > 0 || d.cuts > 0, err
}

// discard deletes what containerd has of an incomplete blob.
func (p *pull) discard(ctx context.Context, blob ocispec.Descriptor) error {
	p.progress.set(blob, 0)
	for tries := 0; ; tries++ {
		err := lease.UnlessNotFound(p.engine.store.Abort(ctx, lease.IngestRef(blob)))
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

// awaitCRI waits while CRI fetches the blob: a slow link must not carry the same bytes twice.
func (p *pull) awaitCRI(ctx context.Context, blob ocispec.Descriptor) error {
	var theirs ingest
	return wait.PollUntilContextCancel(ctx, lookAgain, true, func(ctx context.Context) (done bool, err error) {
		s, err := p.engine.store.Status(ctx, remotes.MakeRefKey(ctx, blob))
		if errdefs.IsNotFound(err) {
			return true, nil // the blob is complete, or nobody fetches it
		}
		if err != nil || p.awaited >= awaitAtMost || !theirs.isComing(s, blob, time.Now()) {
			return true, err
		}
		p.awaited += lookAgain
		return false, nil
	})
}

// ingest is the progress of CRI's own fetch of a blob.
type ingest struct {
	seen     bool
	offset   int64
	measured registry.Pace
}

// isComing reports whether CRI is still fetching the blob. It must be called every lookAgain. A
// blob of another size is of an image that lies about the digest: anybody may make CRI pull such
// an image.
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
