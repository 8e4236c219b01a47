package store

import (
	"errors"
	"fmt"

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
