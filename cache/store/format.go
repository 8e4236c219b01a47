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

// formatVersion is the version of the file's format. A file of another version is moved aside
// like a damaged one: a cache can be filled again. In version 1, objects were stored under
// their names and versions, without the sums of their contents.
const formatVersion = 2

var (
	keyFormat = []byte("format") // version, and whether the rest is encrypted; never encrypted itself
	keyCheck  = []byte("check")  // sealed: shows whether the key is the right one
	keyViews  = []byte("views")  // tally of the IDs of views
	keyTables = []byte("tables") // name and tally of each table; missing in files of early builds
)

// ready creates the buckets of a new file, or checks that the codec can read an existing one
// and that it has all of its views.
func (s *Store) ready() error {
	isNew := false
	err := s.db.View(func(tx *bolt.Tx) error {
		if isNew = tx.Bucket(bucketMeta) == nil; !isNew {
			return s.codec.checkFile(tx)
		}
		if name, _ := tx.Cursor().First(); name != nil {
			return corrupt(errors.New("its first table is missing"))
		}
		return nil
	})
	if err != nil || !isNew {
		return err
	}
	if err := s.db.Update(s.codec.create); err != nil {
		return err
	}
	return s.dir.sync()
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
	return errors.Join(
		codec{}.putMeta(tx, keyFormat, format),
		c.putMeta(tx, keyCheck, nil),
		c.putMeta(tx, keyViews, tally{}.append(nil)),
	)
}

func (c codec) checkFile(tx *bolt.Tx) error {
	for _, name := range [][]byte{bucketViews, bucketMembers, bucketObjects, bucketRefs, bucketUnreferenced, bucketTables} {
		if tx.Bucket(name) == nil {
			return corrupt(fmt.Errorf("its table %s is missing", name))
		}
	}
	format, err := codec{}.meta(tx, keyFormat)
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

// codec reads and writes the contents of the buckets.
type codec struct{ seal.Codec }

var (
	errSum  = errors.New("its content does not match its key")
	errSize = errors.New("its size is not that of the member")
)

// object returns an object's bytes, which are valid in the transaction, or ErrNotFound. It does
// not compare them with the Sum in the object's key, which would double the time of reading a
// list: the record's checksum covers both.
func (c codec) object(objects *bolt.Bucket, key []byte) ([]byte, error) {
	record := objects.Get(key)
	if record == nil {
		return nil, ErrNotFound
	}
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

// bytes returns the name of the object that seal.HashKey may hash. Its first three parts contain
// no NUL, and the last one has a fixed length.
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

// digest is the sum of hashes of a set's elements, in any order. It changes with each element that
// is added or removed. It detects damage, not attacks.
type digest uint64

func digestOf(parts ...string) digest {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return digest(h.Sum64())
}

// count adds a member to the view's totals, or with sign -1 removes it.
func (v *View) count(m *Member, sign int) {
	v.Members += sign
	v.Bytes += int64(sign) * int64(len(m.Name)+len(m.ResourceVersion)+m.Size)
	v.digest += digest(sign) * digestOf(m.Name, m.ResourceVersion, string(m.Sum[:]))
}

// tally is the number of elements of a set, and their digest: it shows that one was lost.
type tally struct {
	n      int
	digest digest
}

// count adds an element, or with sign -1 removes it.
func (t *tally) count(sign int, parts ...string) {
	t.n += sign
	t.digest += digest(sign) * digestOf(parts...)
}

func (t tally) append(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(t.n)), uint64(t.digest))
}

func readTally(r *seal.Fields) tally { return tally{n: int(r.Uint()), digest: digest(r.Uint())} }
