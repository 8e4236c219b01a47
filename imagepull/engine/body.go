package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// body is the body of one response on its way in.
type body struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // it is the request's, and ends with the body
	cancel context.CancelCauseFunc
	wire   *wire
	limit  int64 // how many bytes the body may have
	left   int64 // how many of them are still to come
	pace   pace
}

// Read fails with a *wireError, never with io.ErrUnexpectedEOF, on which containerd's
// reader would ask for the rest by itself and hide why that fails. A body without an
// end fails with an *oddAnswer.
func (b *body) Read(p []byte) (int, error) {
	p = allowance(b.wire.limiter, p)
	if int64(len(p)) > b.left {
		p = p[:b.left+1] // one byte more shows whether the body ends
	}
	n, waited, err := b.read(p)
	if int64(n) > b.left {
		return int(b.left), &oddAnswer{fmt.Sprintf("it answers with more than %s", amount(b.limit))}
	}
	b.left -= int64(n)
	b.wire.fetched(n)
	switch {
	case errors.Is(err, io.EOF):
		b.wire.patience.add(waited, n)
		return n, io.EOF
	case err != nil:
		if s, ok := errors.AsType[stall](context.Cause(b.ctx)); ok {
			err = s
		}
		return n, &wireError{cause: err, midway: true}
	}
	if b.wire.patience.add(waited, n) || b.pace.slow(waited, n, b.wire.patience.window) {
		return n, &wireError{cause: errSlow, midway: true}
	}
	if err := pay(b.ctx, b.wire.limiter, n); err != nil {
		return n, &wireError{cause: err, midway: true}
	}
	return n, nil
}

// read also returns how long the registry took.
func (b *body) read(p []byte) (int, time.Duration, error) {
	stalled := time.AfterFunc(b.wire.patience.window, func() { b.cancel(errStalled) })
	defer stalled.Stop()
	start := time.Now()
	n, err := b.ReadCloser.Read(p)
	return n, time.Since(start), err
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
