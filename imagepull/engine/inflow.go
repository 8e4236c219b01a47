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
)

const (
	// pieceSize is how much of a blob is read at once. What has come in is given to
	// containerd before more is read, so that little is lost when this program is
	// killed, however slow the line.
	pieceSize = 128 << 10
	// cutsAtMost is how often a blob is asked for again within one pull when the
	// connection breaks without having brought as much as is fruitful, in bytes: what
	// minRate asks for in a minute. A registry that cuts each connection after a byte must
	// not hold a pull for ever.
	cutsAtMost = 3
	fruitful   = 60 * minRate
	// afterCut is how long the first of these waits; the next ones wait twice as long.
	afterCut = time.Second
)

// inflow is a blob that is coming in.
type inflow struct {
	pull   *pull
	blob   ocispec.Descriptor
	to     io.Writer // containerd
	offset int64     // up to where it is there
	cuts   int       // broken connections
}

// run brings in what is missing, over as many connections as it takes. A failure of
// the registry is an *Error, one of containerd is not, and what has to be fetched from
// the start is errdefs.ErrFailedPrecondition.
func (in *inflow) run(ctx context.Context) error {
	if in.offset > in.blob.Size {
		return fmt.Errorf("%d bytes are there of %d: %w", in.offset, in.blob.Size, errdefs.ErrFailedPrecondition)
	}
	for fruitless := 0; in.offset < in.blob.Size; {
		before := in.offset
		err := in.connection(ctx)
		if !isCut(err) {
			return err
		}
		in.cuts++
		fruitless++
		if in.offset-before >= fruitful {
			fruitless = 1
		}
		if fruitless > cutsAtMost {
			return in.pull.registry.failure(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(afterCut << (fruitless - 1)):
		}
	}
	return nil
}

// isCut reports whether a connection broke that worked until then.
func isCut(err error) bool {
	w, ok := errors.AsType[*wireError](err)
	_, stalled := errors.AsType[stall](err)
	return ok && w.midway && !stalled
}

// connection brings in what it can over one connection.
func (in *inflow) connection(ctx context.Context) error {
	var written error
	err := in.pull.registry.with(func(r remotes.Resolver) (err error) {
		from, err := in.open(ctx, r)
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }() // it is only read from
		err, written = in.copy(from)
		return err
	})
	switch {
	case written != nil:
		return written
	case err == nil || isCut(err) || errdefs.IsFailedPrecondition(err):
		return err
	case errdefs.IsNotFound(err):
		return errorf(NotFound, "registry %s has only part of it: %s is missing; push it again", in.pull.registry.host(), in.blob.Digest)
	}
	failure := in.pull.registry.failure(err)
	if in.offset > 0 && statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
		// There is no such rest: what is here is not of this blob. Any other answer may be
		// that of somebody who stands between here and the registry, and proves nothing.
		return fmt.Errorf("%w: %w", failure, errdefs.ErrFailedPrecondition)
	}
	return failure
}

// open asks for the rest of the blob. A registry that does not know Range sends all
// of it; what is there already is then read and dropped.
func (in *inflow) open(ctx context.Context, r remotes.Resolver) (io.ReadCloser, error) {
	fetcher, err := r.Fetcher(ctx, in.pull.name)
	if err != nil {
		return nil, err
	}
	from, err := fetcher.Fetch(ctx, in.blob)
	if err != nil {
		return nil, err
	}
	if in.offset == 0 {
		return from, nil
	}
	seeker, ok := from.(io.Seeker)
	if !ok {
		return nil, errors.Join(fmt.Errorf("go on with %s: it cannot be read from the middle", in.blob.Digest), from.Close())
	}
	if _, err := seeker.Seek(in.offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, from.Close())
	}
	return from, nil
}

// copy tells what failed: to read, or to write.
func (in *inflow) copy(from io.Reader) (read, written error) {
	piece := make([]byte, min(pieceSize, in.blob.Size-in.offset))
	for in.offset < in.blob.Size {
		n, err := from.Read(piece[:min(pieceSize, in.blob.Size-in.offset)])
		if n > 0 {
			done, err := in.to.Write(piece[:n])
			in.offset += int64(done)
			in.pull.progress.set(in.blob, in.offset)
			if err != nil {
				return nil, err
			}
		}
		if err == io.EOF && in.offset < in.blob.Size {
			return &wireError{cause: io.ErrUnexpectedEOF, midway: true}, nil
		}
		if err != nil && err != io.EOF {
			return err, nil
		}
	}
	return nil, nil
}
