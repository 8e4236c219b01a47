package store

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
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

// streamChunk is how many bytes of objects are copied out in one transaction,
// or one object if that is larger.
const streamChunk = 256 << 10

// objectChunk is a buffer for objects, used again for each chunk.
type objectChunk struct {
	store *Store
	id    ID // of the view
	scope string
	buf   []byte
	ends  []int  // of each object in buf
	key   []byte // of the object being read
	where []byte // its place
}

func (c *objectChunk) bytes(i int) []byte {
	start := 0
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.buf[start:c.ends[i]:c.ends[i]]
}

// read fills the chunk with the first objects of members and says with how many.
func (c *objectChunk) read(members []Member) (int, error) {
	if c.buf == nil {
		c.buf = make([]byte, 0, chunkSize(members))
	}
	c.buf, c.ends = c.buf[:0], c.ends[:0]
	var at string
	err := c.store.view(func(tx *bolt.Tx) error {
		objects := tx.Bucket(bucketObjects).Cursor()
		for _, m := range members {
			if len(c.buf) > 0 && len(c.buf)+m.Size > streamChunk {
				break
			}
			at = m.Name
			if err := c.append(tx, objects, m); err != nil {
				return err
			}
		}
		return nil
	})
	return len(c.ends), ofView(c.id, at, err)
}

// chunkSize is what the first chunk of members takes, in bytes.
func chunkSize(members []Member) int {
	size := 0
	for _, m := range members {
		if size += m.Size; size >= streamChunk {
			return streamChunk + streamChunk/4
		}
	}
	return size
}

func (c *objectChunk) append(tx *bolt.Tx, objects *bolt.Cursor, m Member) error {
	start := len(c.buf)
	buf, err := c.object(objects, m.key(c.scope))
	switch {
	case errors.Is(err, ErrNotFound):
		return c.missing(tx, m)
	case err != nil:
		return err
	case len(buf)-start != m.Size:
		return corrupt(errSize)
	}
	c.buf, c.ends = buf, append(c.ends, len(buf))
	return nil
}

// object is codec.object without its allocations: a list has thousands.
func (c *objectChunk) object(objects *bolt.Cursor, k ObjectKey) ([]byte, error) {
	codec := c.store.codec
	c.key = k.append(c.key[:0])
	key := codec.HashKey(seal.KindObject, nil, c.key)
	var found, record []byte
	if len(c.ends) > 0 && !codec.Encrypts() { // where names are not hidden, the next is beside the last
		found, record = objects.Next()
	}
	if !bytes.Equal(found, key) {
		found, record = objects.Seek(key)
	}
	if !bytes.Equal(found, key) {
		return c.buf, ErrNotFound
	}
	at := seal.At(seal.KindObject, nil, key)
	c.where = at.Append(c.where[:0])
	_, b, err := codec.OpenAt(at, c.where, record)
	return append(c.buf, b...), err
}

// missing says whether an object has rightly gone.
func (c *objectChunk) missing(tx *bolt.Tx, m Member) error {
	codec := c.store.codec
	now, err := codec.view(tx, c.id)
	if errors.Is(err, ErrNotFound) {
		return ErrChanged
	}
	bucket := tx.Bucket(bucketMembers).Bucket(c.id[:])
	if err != nil || bucket == nil || now.Scope != c.scope {
		return ErrChanged
	}
	key := codec.HashKey(seal.KindMember, c.id[:], []byte(m.Name))
	if record := bucket.Get(key); record != nil {
		if still, err := codec.openMember(c.id, key, record); err == nil && still == m {
			return &corruption{ofView(c.id, m.Name, corrupt(errors.New("it is missing")))}
		}
	}
	return ErrChanged
}
