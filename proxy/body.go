package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// maxReplay is the size, in bytes, up to which a request body of known length
// is held in memory, so that the request can be sent again when an apiserver
// says GOAWAY before it has read it. A kubelet's pod and node status patches
// are smaller; what is larger goes through as a stream.
const maxReplay = 256 << 10

// holdSmallBody makes the body of r replayable if it is small. A client that
// breaks off in the middle of its body is an error.
func holdSmallBody(r *http.Request) error {
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > maxReplay {
		return nil
	}
	held := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, held); err != nil {
		return err
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(held)), nil }
	r.Body, _ = r.GetBody()
	return nil
}

// errClientBody marks a failure to read a request's body from its client.
var errClientBody = errors.New("the client broke off its request body")

// sentBody is a request body on its way to one apiserver. A transport closes
// the body of a request that it could not send; the client's stays open for the
// next apiserver.
type sentBody struct{ io.Reader }

func (b sentBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", errClientBody, err)
	}
	return n, err
}

func (sentBody) Close() error { return nil }

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
