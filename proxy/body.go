package proxy

import (
	"io"
	"sync"
)

// copyBuffers lends the buffers that bodies are copied through. 32 KiB is what
// io.Copy uses, and two HTTP/2 frames.
type copyBuffers struct{ pool sync.Pool }

const copyBufferSize = 32 << 10

func newCopyBuffers() *copyBuffers {
	return &copyBuffers{pool: sync.Pool{New: func() any { return new([copyBufferSize]byte) }}}
}

func (b *copyBuffers) Get() []byte  { return b.pool.Get().(*[copyBufferSize]byte)[:] }
func (b *copyBuffers) Put(p []byte) { b.pool.Put((*[copyBufferSize]byte)(p)) }

// writingBody is the body of an answer that writes itself, an io.WriterTo, to where the
// first Read of it would be copied: httputil.ReverseProxy copies through a buffer of its
// own, 32 KiB at a time, which is a third of what a list from the cache costs. It is not for
// answers without a length: these ReverseProxy flushes from another goroutine meanwhile.
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
