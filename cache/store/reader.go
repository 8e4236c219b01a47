package store

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// readChunk is how many bytes of objects are copied in one transaction, or one object if that
// is larger.
const readChunk = 256 << 10

// Reader reads objects of a view, whose names and versions the caller knows. While it is open,
// objects that commits remove are kept, up to Options.MaxHeld: a caller that opens a Reader
// and then takes the members of the view can read all of them. It is for one goroutine at a
// time.
type Reader struct {
	store *Store
	id    ID // of the view
	scope string
	close func()

	buf  []byte // of the objects of one Read
	ends []int  // where each of them ends in buf

	key, where []byte // buffers for the key of an object, and its place
}

// NewReader returns a Reader of a view whose objects are of one scope. It must be closed.
func (s *Store) NewReader(id ID, scope string) *Reader {
	s.readers.Add(1)
	return &Reader{store: s, id: id, scope: scope, close: sync.OnceFunc(func() { s.readers.Add(-1) })}
}

// Read calls each for the first of members, as many as are read at once (256 KiB, or one that
// is larger), and returns their number. An object's bytes are valid until the next Read. The
// error is ErrChanged if an object was removed by a commit; ErrCorrupt if it is damaged, has
// another content or size than the member, or is missing although the view on disk has it; or
// that of each.
func (r *Reader) Read(members []Member, each func(Object) error) (int, error) {
	if r.buf == nil {
		r.buf = make([]byte, 0, bufferSize(members))
	}
	r.buf, r.ends = r.buf[:0], r.ends[:0]
	if err := r.fill(members); err != nil {
		return 0, fmt.Errorf("read objects: %w", err)
	}
	start := 0
	for i, end := range r.ends {
		m := members[i]
		if err := each(Object{m.Name, m.ResourceVersion, m.Sum, r.buf[start:end:end]}); err != nil {
			return i, err
		}
		start = end
	}
	return len(r.ends), nil
}

// bufferSize returns the capacity, in bytes, that the first Read of members needs.
func bufferSize(members []Member) int {
	size := 0
	for _, m := range members {
		if size += m.Size; size >= readChunk {
			return readChunk + readChunk/4
		}
	}
	return size
}

// fill reads the first objects of members into buf.
func (r *Reader) fill(members []Member) error {
	var name string
	err := r.store.view(func(tx *bolt.Tx) error {
		objects := tx.Bucket(bucketObjects).Cursor()
		for _, m := range members {
			if len(r.buf) > 0 && len(r.buf)+m.Size > readChunk {
				break
			}
			name = m.Name
			if err := r.append(tx, objects, m); err != nil {
				return err
			}
		}
		return nil
	})
	return ofView(r.id, name, err)
}

// append appends an object to buf. It allocates nothing: a list has thousands of objects.
func (r *Reader) append(tx *bolt.Tx, objects *bolt.Cursor, m Member) error {
	codec := r.store.codec
	r.key = m.key(r.scope).append(r.key[:0])
	key := codec.HashKey(seal.KindObject, nil, r.key)
	var found, record []byte
	if len(r.ends) > 0 && !codec.Encrypts() { // without hashed keys, the next object follows the last
		found, record = objects.Next()
	}
	if !bytes.Equal(found, key) {
		found, record = objects.Seek(key)
	}
	if !bytes.Equal(found, key) {
		return r.missing(tx, m)
	}
	at := seal.At(seal.KindObject, nil, key)
	r.where = at.Append(r.where[:0])
	_, b, err := codec.OpenAt(at, r.where, record)
	if err == nil && len(b) != m.Size {
		err = corrupt(errSize)
	}
	r.buf = append(r.buf, b...)
	r.ends = append(r.ends, len(r.buf))
	return err
}

// missing returns the error for an object that is not found: ErrChanged, unless the view on
// disk still has it.
func (r *Reader) missing(tx *bolt.Tx, m Member) error {
	codec := r.store.codec
	now, err := codec.view(tx, r.id)
	bucket := tx.Bucket(bucketMembers).Bucket(r.id[:])
	if err != nil || bucket == nil || now.Scope != r.scope {
		return ErrChanged
	}
	key := codec.HashKey(seal.KindMember, r.id[:], []byte(m.Name))
	if record := bucket.Get(key); record != nil {
		if still, err := codec.openMember(r.id, key, record); err == nil && still == m {
			return &corruption{ofView(r.id, m.Name, corrupt(errors.New("it is missing")))}
		}
	}
	return ErrChanged
}

// Lend makes the Reader read into a buffer of the caller.
func (r *Reader) Lend(buf []byte) { r.buf = buf[:0] }

// Reclaim returns that buffer, or a larger one that has replaced it. Objects in it are then no
// longer valid.
func (r *Reader) Reclaim() []byte {
	buf := r.buf
	r.buf, r.ends = nil, r.ends[:0]
	return buf
}

// Close releases the objects that were kept for the Reader.
func (r *Reader) Close() { r.close() }
