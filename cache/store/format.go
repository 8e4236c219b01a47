package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// formatVersion is that of the records. A file of another version is moved
// aside like a damaged one: a cache is filled again. In version 1 objects were
// stored under their names and versions, without the sums of their contents.
const formatVersion = 2

var (
	keyFormat = []byte("format") // never encrypted: version, whether the rest is
	keyCheck  = []byte("check")  // sealed, to know the key by
	keyViews  = []byte("views")  // how many there are, and their digest
)

// ready makes a new file's buckets, or checks that a file is one that this
// codec can read and that none of its views has gone.
func (s *Store) ready() error {
	isNew := false
	if err := s.db.View(func(tx *bolt.Tx) error {
		isNew = tx.Bucket(bucketMeta) == nil
		if isNew {
			if name, _ := tx.Cursor().First(); name != nil {
				return corrupt(errors.New("its first table is missing"))
			}
			return nil
		}
		return s.codec.checkFile(tx)
	}); err != nil {
		return err
	}
	if isNew {
		if err := s.db.Update(s.codec.create); err != nil {
			return err
		}
		return s.dir.sync()
	}
	return nil
}

func (c codec) create(tx *bolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketViews, bucketMembers, bucketObjects, bucketRefs, bucketUnreferenced, bucketTables} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	format := []byte{formatVersion, 0}
	if c.Encrypts() {
		format[1] = 1
	}
	plain := codec{}
	if err := tx.Bucket(bucketMeta).Put(keyFormat, plain.Seal(seal.At(seal.KindMeta, nil, keyFormat), nil, format)); err != nil {
		return err
	}
	if err := c.putMeta(tx, keyCheck, nil); err != nil {
		return err
	}
	return c.putMeta(tx, keyViews, viewCount{}.encode())
}

func (c codec) checkFile(tx *bolt.Tx) error {
	for _, name := range [][]byte{bucketViews, bucketMembers, bucketObjects, bucketRefs, bucketUnreferenced, bucketTables} {
		if tx.Bucket(name) == nil {
			return corrupt(fmt.Errorf("its table %s is missing", name))
		}
	}
	plain := codec{}
	_, format, err := plain.Open(seal.At(seal.KindMeta, nil, keyFormat), tx.Bucket(bucketMeta).Get(keyFormat))
	switch {
	case err != nil:
		return err
	case len(format) != 2 || format[0] != formatVersion:
		return corrupt(fmt.Errorf("%w: its format is %v, this hub's is version %d", ErrFormat, format, formatVersion))
	case format[1] == 1 && !c.Encrypts():
		return fmt.Errorf("%w: the file is encrypted, and no key was given", ErrKey)
	case format[1] == 0 && c.Encrypts():
		return fmt.Errorf("%w: the file is not encrypted; remove it to start an encrypted one", ErrKey)
	}
	if _, err := c.meta(tx, keyCheck); errors.Is(err, seal.ErrSeal) {
		return fmt.Errorf("%w: the file was written with another one; give that one, or remove the file", ErrKey)
	} else if err != nil {
		return err
	}
	_, err = c.views(tx)
	return err
}

func (c codec) putMeta(tx *bolt.Tx, key, payload []byte) error {
	return tx.Bucket(bucketMeta).Put(key, c.Seal(seal.At(seal.KindMeta, nil, key), nil, payload))
}

func (c codec) meta(tx *bolt.Tx, key []byte) ([]byte, error) {
	_, payload, err := c.Open(seal.At(seal.KindMeta, nil, key), tx.Bucket(bucketMeta).Get(key))
	return payload, err
}

// codec reads and writes what the buckets of the file hold.
type codec struct{ seal.Codec }

var (
	errSum  = errors.New("its content is not the one it is stored under")
	errSize = errors.New("its size is not the one that its view knows")
)

// openObject returns the bytes of an object's record. That they are still those whose Sum
// is in the object's key, the record's checksum says, which covers both: computing the Sum
// again would take as long as all the rest of reading a list.
func (c codec) openObject(key, record []byte) ([]byte, error) {
	_, b, err := c.Open(seal.At(seal.KindObject, nil, key), record)
	return b, err
}

// checkObject reports an object whose bytes are not those of its Sum.
func (c codec) checkObject(key, record []byte) error {
	name, b, err := c.Open(seal.At(seal.KindObject, nil, key), record)
	if err != nil {
		return err
	}
	if sum := SumOf(b); !bytes.HasSuffix(name, sum[:]) {
		return corrupt(errSum)
	}
	return nil
}

// bytes of the key an object has before it is hidden. Its first three parts have no
// NUL, and the last one has a fixed length.
func (k ObjectKey) bytes() []byte {
	return k.append(make([]byte, 0, len(k.Scope)+len(k.Name)+len(k.ResourceVersion)+3+len(k.Sum)))
}

func (k ObjectKey) append(b []byte) []byte {
	b = append(b, k.Scope...)
	b = append(b, 0)
	b = append(b, k.Name...)
	b = append(b, 0)
	b = append(b, k.ResourceVersion...)
	b = append(b, 0)
	return append(b, k.Sum[:]...)
}

// object returns an object's bytes, valid in the transaction, or ErrNotFound.
func (c codec) object(tx *bolt.Tx, k ObjectKey) ([]byte, error) {
	key := c.HashKey(seal.KindObject, nil, k.bytes())
	record := tx.Bucket(bucketObjects).Get(key)
	if record == nil {
		return nil, ErrNotFound
	}
	return c.openObject(key, record)
}

const (
	flagComplete = 1 << iota
	flagStale
)

func (v *View) encode() []byte {
	var flags uint64
	if v.Complete {
		flags |= flagComplete
	}
	if v.Stale {
		flags |= flagStale
	}
	b := binary.AppendUvarint(nil, flags)
	b = seal.AppendBytes(b, v.Key)
	b = seal.AppendBytes(b, v.Scope)
	b = seal.AppendBytes(b, v.ResourceVersion)
	b = seal.AppendBytes(b, v.Blob)
	b = binary.AppendUvarint(b, uint64(max(v.LastUsed.UnixMilli(), 0)))
	b = binary.AppendUvarint(b, uint64(v.Members))
	b = binary.AppendUvarint(b, uint64(v.Bytes))
	return binary.AppendUvarint(b, uint64(v.digest))
}

func decodeView(id ID, payload []byte) (View, error) {
	r := seal.Fields{Rest: payload}
	flags := r.Uint()
	v := View{
		ID: id,
		Header: Header{
			Complete:        flags&flagComplete != 0,
			Key:             r.Copied(),
			Scope:           string(r.Bytes()),
			ResourceVersion: string(r.Bytes()),
			Blob:            r.Copied(),
			LastUsed:        time.UnixMilli(int64(r.Uint())),
		},
		Stale:   flags&flagStale != 0,
		Members: int(r.Uint()),
		Bytes:   int64(r.Uint()),
		digest:  digest(r.Uint()),
	}
	if r.Err != nil {
		return View{}, corrupt(r.Err)
	}
	return v, nil
}

func (m *Member) encode() []byte {
	b := seal.AppendBytes(binary.AppendUvarint(nil, uint64(m.Size)), m.ResourceVersion)
	return append(b, m.Sum[:]...)
}

func decodeMember(name, payload []byte) (Member, error) {
	r := seal.Fields{Rest: payload}
	m := Member{Name: string(name), Size: int(r.Uint()), ResourceVersion: string(r.Bytes())}
	if copy(m.Sum[:], r.Rest) != len(m.Sum) {
		r.Err = seal.ErrShort
	}
	if r.Err != nil {
		return Member{}, corrupt(r.Err)
	}
	return m, nil
}

// digest is a sum over hashes of a set's elements: it changes with each element
// that comes or goes, in any order. It finds damage, not malice.
type digest uint64

func (d *digest) add(parts ...string)    { *d += element(parts) }
func (d *digest) remove(parts ...string) { *d -= element(parts) }

func element(parts []string) digest {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return digest(h.Sum64())
}

// count adds a member to the view's totals, or takes it away.
func (v *View) count(m *Member, sign int) {
	v.Members += sign
	v.Bytes += int64(sign) * int64(len(m.Name)+len(m.ResourceVersion)+m.Size)
	sum := string(m.Sum[:])
	if sign > 0 {
		v.digest.add(m.Name, m.ResourceVersion, sum)
	} else {
		v.digest.remove(m.Name, m.ResourceVersion, sum)
	}
}
