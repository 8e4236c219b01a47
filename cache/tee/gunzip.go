package tee

import (
	"cmp"
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// unzippers are pooled: each takes 40 KB. Those of the standard library take 1.4 times the CPU, and
// decompressing is most of what the hub adds to a LIST.
var unzippers = sync.Pool{New: func() any { return new(gzip.Reader) }}

var errNoUnzipper = errors.New("not a gzip reader")

// gunzip decompresses what is written to it. The decompressor is a coroutine that waits where it
// needs the next piece: a pipe to a goroutine would switch between the two for every 4 KB.
type gunzip struct {
	resume func() (struct{}, bool) // runs the decompressor until it needs more, or has ended
	piece  []byte
	cause  error // of the end of the input, after its last piece
	result error // of the decompressor, which has ended
}

// newGunzip returns a gunzip that writes to w. Its end must be called.
func newGunzip(w io.Writer) *gunzip {
	g := &gunzip{}
	g.resume, _ = iter.Pull(func(yield func(struct{}) bool) { // without stop: see end
		in := &input{g, yield}
		g.result = decompress(w, in)
		*in = input{} // a pooled decompressor keeps in, and must not keep w
	})
	return g
}

func decompress(w io.Writer, r io.Reader) error {
	z, ok := unzippers.Get().(*gzip.Reader)
	if !ok {
		return errNoUnzipper
	}
	defer unzippers.Put(z)
	if err := z.Reset(r); err != nil {
		return err
	}
	_, err := io.Copy(w, z)
	return err
}

// Write fails if the decompressor has ended.
func (g *gunzip) Write(p []byte) (int, error) {
	g.piece = p
	if _, more := g.resume(); !more {
		return 0, errors.Join(g.result, ErrStopReading) // the rest is discarded
	}
	return len(p), nil
}

// end ends the input, cleanly if cause is nil, and returns the result of the decompressor.
func (g *gunzip) end(cause error) error {
	g.cause = cmp.Or(cause, io.EOF)
	g.resume()
	return g.result
}

// input is what the decompressor reads: the pieces that are written to a gunzip.
type input struct {
	*gunzip
	yield func(struct{}) bool
}

func (i *input) Read(p []byte) (int, error) {
	for len(i.piece) == 0 {
		if i.cause != nil {
			return 0, i.cause
		}
		i.yield(struct{}{})
	}
	n := copy(p, i.piece)
	i.piece = i.piece[n:]
	return n, nil
}
