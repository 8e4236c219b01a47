package proxy

import (
	"io"
	"sync"
)

// copyBuffers pools the buffers for copying bodies. 32 KiB is the size in io.Copy, and of two
// HTTP/2 frames.
type copyBuffers struct{ pool sync.Pool }

const copyBufferSize = 32 << 10

func newCopyBuffers() *copyBuffers {
	return &copyBuffers{pool: sync.Pool{New: func() any { return new([copyBufferSize]byte) }}}
}

func (b *copyBuffers) Get() []byte  { return b.pool.Get().(*[copyBufferSize]byte)[:] }
func (b *copyBuffers) Put(p []byte) { b.pool.Put((*[copyBufferSize]byte)(p)) }

// writingBody is a response body that is an io.WriterTo. Its first Read writes the body directly
// to the client: the copy of httputil.ReverseProxy through a 32 KiB buffer is a third of the
// cost of a list from the cache. It must not be used for responses without a length, which
// ReverseProxy flushes from another goroutine.
type writingBody struct {
	io.ReadCloser
	source io.WriterTo // the ReadCloser
	to     io.Writer
}

func (b writingBody) Read([]byte) (int, error) {
	if _, err := b.source.WriteTo(b.to); err != nil {
		return 0, err
	}
	return 0, io.EOF
}
