package store

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// pins counts the readers that may need objects which no view holds any more.
type pins struct{ readers atomic.Int64 }

func (p *pins) held() bool { return p.readers.Load() > 0 }

// Reader reads objects of a view, whose names and versions the caller knows. While
// it is open, what commits remove is kept, up to Options.MaxHeld, so a caller that
// opens a Reader first and then notes what is in the view, finds all of it. It is
// for one goroutine at a time.
type Reader struct {
	chunk objectChunk
	close func()
}

// NewReader returns a Reader of a view whose objects are of one scope. Close has
// to be called.
func (s *Store) NewReader(id ID, scope string) *Reader {
	s.pins.readers.Add(1)
	return &Reader{
		chunk: objectChunk{store: s, id: id, scope: scope},
		close: sync.OnceFunc(func() { s.pins.readers.Add(-1) }),
	}
}

// Read calls each for the first of members, as many as are read at once (256
// KiB, or one that is larger), and returns how many these were. An object's
// bytes are valid until the next Read. The error is ErrChanged for an object that
// is not there, rightly; ErrCorrupt for a damaged one (also if its content or size
// is not the member's), or for one that is missing though the view on disk has it; or
// that of each.
func (r *Reader) Read(members []Member, each func(Object) error) (int, error) {
	n, err := r.chunk.read(members)
	if err != nil {
		return 0, fmt.Errorf("read objects: %w", err)
	}
	for i, m := range members[:n] {
		if err := each(Object{m.Name, m.ResourceVersion, m.Sum, r.chunk.bytes(i)}); err != nil {
			return i, err
		}
	}
	return n, nil
}

// Lend gives the Reader a buffer to read into, instead of one of its own.
func (r *Reader) Lend(buf []byte) { r.chunk.buf = buf[:0] }

// Reclaim takes the buffer back, or a larger one in its place. Objects that were read
// into it do not hold any more.
func (r *Reader) Reclaim() []byte {
	buf := r.chunk.buf
	r.chunk.buf, r.chunk.ends = nil, r.chunk.ends[:0]
	return buf
}

// Close lets go of what was kept for the Reader.
func (r *Reader) Close() { r.close() }
