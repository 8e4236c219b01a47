package rolloutenv

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// slowBody delays what it reads. It adds latency and does not limit bandwidth: later chunks
// do not wait for earlier ones.
type slowBody struct {
	io.ReadCloser
	lag    *atomic.Int64 // nanoseconds
	chunks chan chunk    // closed at the end; its size is more than a test's watches bring within a lag
	closed chan struct{} // closed by Close
	once   sync.Once
	rest   []byte
	err    error // after the last chunk
}

type chunk struct {
	bytes []byte
	due   time.Time
	err   error
}

func newSlowBody(body io.ReadCloser, lag *atomic.Int64) *slowBody {
	b := &slowBody{ReadCloser: body, lag: lag, chunks: make(chan chunk, 4096), closed: make(chan struct{})}
	go b.fetch()
	return b
}

func (b *slowBody) fetch() {
	defer close(b.chunks)
	for {
		bytes := make([]byte, 16<<10)
		n, err := b.ReadCloser.Read(bytes)
		select {
		case b.chunks <- chunk{bytes[:n], time.Now().Add(time.Duration(b.lag.Load())), err}:
		case <-b.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

func (b *slowBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		c, ok := <-b.chunks
		if !ok {
			return 0, io.ErrUnexpectedEOF // it was closed
		}
		select {
		case <-time.After(time.Until(c.due)):
		case <-b.closed:
		}
		b.rest, b.err = c.bytes, c.err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *slowBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}
