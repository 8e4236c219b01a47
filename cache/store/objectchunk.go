package store

import (
	"bytes"
	"errors"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

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
