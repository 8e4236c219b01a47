package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// body is the body of one response.
type body struct {
	io.ReadCloser
	ctx        context.Context //nolint:containedctx // it is the request's, and ends with the body
	cancel     context.CancelCauseFunc
	transports *Transports
	limit      int64 // bytes that the body may have
	left       int64 // bytes that may still come
	pace       Pace
	err        error // of the read that ended the body
}

// Read fails with a *connError, never with io.ErrUnexpectedEOF: on that error containerd's
// reader would ask for the rest itself, and hide why that fails. A body without an end fails
// with an *unexpectedResponse.
//
// After an error Read returns no more bytes: encoding/json ignores errors that come with bytes,
// and would otherwise read a body without an end to the last byte.
func (b *body) Read(p []byte) (n int, err error) {
	if b.err == nil {
		n, b.err = b.readLimited(p)
	}
	return n, b.err
}

func (b *body) readLimited(p []byte) (int, error) {
	p = p[:min(len(p), b.transports.limiter.Burst())]
	if int64(len(p)) > b.left {
		p = p[:b.left+1] // one byte more shows whether the body ends
	}
	n, waited, err := b.read(p)
	if int64(n) > b.left {
		return int(b.left), &unexpectedResponse{fmt.Sprintf("it answers with more than %s", engineapi.Amount(b.limit))}
	}
	b.left -= int64(n)
	b.transports.fetched(n)
	spent := b.transports.budget.add(waited, n)
	switch {
	case errors.Is(err, io.EOF):
		return n, io.EOF
	case err != nil:
	case spent || b.pace.Slow(waited, n, b.transports.budget.window):
		err = errSlow
	default:
		// While this waits, nothing is read from the connection, which slows down the registry.
		err = b.transports.limiter.WaitN(b.ctx, n)
	}
	if err == nil {
		return n, nil
	}
	if s, ok := errors.AsType[stall](context.Cause(b.ctx)); ok {
		err = s
	}
	return n, &connError{cause: err, midway: true}
}

// read also returns how long the registry took.
func (b *body) read(p []byte) (int, time.Duration, error) {
	stalled := time.AfterFunc(b.transports.budget.window, func() { b.cancel(errStalled) })
	defer stalled.Stop()
	start := time.Now()
	n, err := b.ReadCloser.Read(p)
	return n, time.Since(start), err
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
