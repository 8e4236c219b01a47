package store

import (
	"bytes"
	"errors"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

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
