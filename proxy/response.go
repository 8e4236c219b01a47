package proxy

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// responseWriter forwards 1xx responses of the apiserver except 100 Continue: net/http itself
// sends that as soon as the body of the request is read, and a second one would confuse
// clients that expect the final response.
type responseWriter struct {
	http.ResponseWriter
	begun bool // a 1xx was forwarded, after which httputil.ReverseProxy clears the header
}

// Unwrap is for http.ResponseController.
func (i *responseWriter) Unwrap() http.ResponseWriter { return i.ResponseWriter }

func (i *responseWriter) WriteHeader(code int) {
	switch {
	case code == http.StatusContinue:
		return
	case code < http.StatusOK && code != http.StatusSwitchingProtocols:
		i.begun = true
	case i.begun:
		suppressDefaults(i.Header())
	}
	i.ResponseWriter.WriteHeader(code)
}

// suppressDefaults prevents net/http from adding a Content-Type or Date that the apiserver has
// not sent.
func suppressDefaults(h http.Header) {
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
}

// watchBody is the body of a watch. Once the hub drains, it always ends cleanly.
type watchBody struct {
	io.ReadCloser
	draining context.Context
}

func (d *watchBody) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err != nil && d.draining.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// copyBuffers pools the buffers for copying bodies.
type copyBuffers struct{ pool sync.Pool }

const (
	// copyBuffer is the size, in bytes, that io.Copy uses, and that of two HTTP/2 frames.
	copyBuffer = 32 << 10
	// watchBuffer is the same for a watch, which has its buffer for as long as it is open: a
	// thousand of copyBuffer were a third of the hub's heap. Most events fit into it.
	watchBuffer = 8 << 10
)

func newCopyBuffers(size int) *copyBuffers {
	return &copyBuffers{pool: sync.Pool{New: func() any { b := make([]byte, size); return &b }}}
}

func (b *copyBuffers) Get() []byte  { return *b.pool.Get().(*[]byte) }
func (b *copyBuffers) Put(p []byte) { b.pool.Put(&p) }

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
