package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/registry"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

const (
	// cutsAtMost is how often one pull resumes a blob after the connection broke without
	// progress. A registry that cuts each connection after a byte must not hold up a pull for
	// ever.
	cutsAtMost = 3
	// progressAtLeast is how many bytes count as progress: what MinRate asks for in a minute.
	progressAtLeast = 60 * registry.MinRate
	// afterCut is the backoff before the first resume; it doubles with each cut without progress.
	afterCut = time.Second
)

// download fetches one blob.
type download struct {
	pull   *pull
	blob   ocispec.Descriptor
	to     io.Writer // containerd
	offset int64     // bytes that containerd has
	cuts   int       // broken connections
}

// run fetches the rest of the blob, over as many connections as necessary. Its error is an *Error
// if the registry failed, errdefs.ErrFailedPrecondition if the blob has to be fetched from the
// start, and otherwise containerd's.
func (d *download) run(ctx context.Context) error {
	if d.offset > d.blob.Size {
		return fmt.Errorf("%d bytes are there of %d: %w", d.offset, d.blob.Size, errdefs.ErrFailedPrecondition)
	}
	for withoutProgress := 0; d.offset < d.blob.Size; {
		before := d.offset
		err := d.connection(ctx)
		if !registry.IsCut(err) {
			return err
		}
		d.cuts++
		withoutProgress++
		if d.offset-before >= progressAtLeast {
			withoutProgress = 1
		}
		if withoutProgress > cutsAtMost {
			return d.pull.registry.Failure(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(afterCut << (withoutProgress - 1)):
		}
	}
	return nil
}

// connection fetches over one connection until the connection breaks or the blob is complete.
func (d *download) connection(ctx context.Context) error {
	var written error
	err := d.pull.registry.With(func(r remotes.Resolver) (err error) {
		from, err := d.open(ctx, r)
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }() // only read
		err, written = d.copy(from)
		return err
	})
	switch {
	case written != nil:
		return written
	case err == nil || registry.IsCut(err) || errdefs.IsFailedPrecondition(err):
		return err
	case errdefs.IsNotFound(err):
		return engineapi.Errorf(engineapi.NotFound, "registry %s has only part of it: %s is missing; push it again", d.pull.registry.Host(), d.blob.Digest)
	}
	failure := d.pull.registry.Failure(err)
	if d.offset > 0 && registry.StatusOf(err) == http.StatusRequestedRangeNotSatisfiable {
		// The blob has no such range, so the bytes on the node are not of this blob. Any other
		// answer may come from a proxy or a captive portal, and is no evidence about the blob.
		return fmt.Errorf("%w: %w", failure, errdefs.ErrFailedPrecondition)
	}
	return failure
}

// open requests the rest of the blob. If the registry ignores Range, containerd's reader drops
// the start.
func (d *download) open(ctx context.Context, r remotes.Resolver) (io.ReadCloser, error) {
	fetcher, err := r.Fetcher(ctx, d.pull.name)
	if err != nil {
		return nil, err
	}
	from, err := fetcher.Fetch(ctx, d.blob)
	if err != nil || d.offset == 0 {
		return from, err
	}
	seeker, ok := from.(io.Seeker)
	if !ok {
		return nil, errors.Join(fmt.Errorf("go on with %s: it cannot be read from the middle", d.blob.Digest), from.Close())
	}
	if _, err := seeker.Seek(d.offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, from.Close())
	}
	return from, nil
}

// copy distinguishes errors of the registry from errors of containerd.
func (d *download) copy(from io.Reader) (read, written error) {
	piece := make([]byte, min(registry.PieceSize, d.blob.Size-d.offset))
	for d.offset < d.blob.Size {
		n, err := from.Read(piece[:min(registry.PieceSize, d.blob.Size-d.offset)])
		if n > 0 {
			done, err := d.to.Write(piece[:n])
			d.offset += int64(done)
			d.pull.progress.set(d.blob, d.offset)
			if err != nil {
				return nil, err
			}
		}
		if err == io.EOF && d.offset < d.blob.Size {
			return registry.Truncated(), nil
		}
		if err != nil && err != io.EOF {
			return err, nil
		}
	}
	return nil, nil
}
