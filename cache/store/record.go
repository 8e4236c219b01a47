package store

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A record is a value in the file: a CRC-32C, then the payload. The checksum
// covers the kind of the record, what it belongs to, and its key: a record that
// was moved is as damaged as one that was changed. With encryption, the payload
// is sealed together with the name that its key hides.

// kind tells the records of different buckets apart.
type kind byte

const (
	kindMeta         kind = 'i'
	kindView         kind = 'v'
	kindMember       kind = 'm' // belongs to a view's ID
	kindObject       kind = 'o'
	kindRefs         kind = 'r' // its key is an object's
	kindUnreferenced kind = 't' // its key is an object's
	kindPair         kind = 'k' // belongs to a table
)

// place is where a record lies.
type place struct {
	kind   kind
	parent []byte
	key    []byte
}

var (
	errShort    = errors.New("cut short")
	errChecksum = errors.New("its checksum is wrong")
	errSeal     = errors.New("it cannot be decrypted")
	errSum      = errors.New("its content is not the one it is stored under")
	errSize     = errors.New("its size is not the one that its view knows")
)

// codec writes and reads records. The zero codec does not encrypt.
type codec struct {
	values *xaes
	names  []byte // the HMAC key for names
}

// newCodec returns a codec for an encryption key, nil for none.
func newCodec(key []byte) (codec, error) {
	if key == nil {
		return codec{}, nil
	}
	if len(key) != 32 {
		return codec{}, fmt.Errorf("an encryption key has 32 bytes, this one has %d", len(key))
	}
	values, err := hkdf.Key(sha256.New, key, nil, "edgehub cache values", 32)
	if err != nil {
		return codec{}, err
	}
	names, err := hkdf.Key(sha256.New, key, nil, "edgehub cache names", 32)
	return codec{values: newXAES([32]byte(values)), names: names}, err
}

func (c codec) encrypts() bool { return c.values != nil }

// hashKey returns the key that a name is stored under: the name, or 16 bytes that
// tell nothing about it.
func (c codec) hashKey(k kind, parent, name []byte) []byte {
	if !c.encrypts() {
		return name
	}
	mac := hmac.New(sha256.New, c.names)
	mac.Write(place{k, parent, name}.bytes())
	return mac.Sum(nil)[:16]
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumSize = 4

// seal returns the record for payload. The name is kept with it if the key
// hides it; records whose keys hide nothing have no name.
func (c codec) seal(at place, name, payload []byte) []byte {
	where := at.bytes()
	record := make([]byte, sumSize, sumSize+len(payload)+len(name)+xaesOverhead+binary.MaxVarintLen32)
	if c.encrypts() {
		plain := appendBytes(make([]byte, 0, cap(record)), name)
		record = c.values.seal(record, append(plain, payload...), where)
	} else {
		record = append(record, payload...)
	}
	binary.LittleEndian.PutUint32(record, sum(where, record[sumSize:]))
	return record
}

// open returns the payload of a record, and the name its key stands for. Without
// encryption both are part of the arguments, not copies.
func (c codec) open(at place, record []byte) (name, payload []byte, err error) {
	return c.openAt(at, at.bytes(), record)
}

// openAt is open for whoever has the place's bytes.
func (c codec) openAt(at place, where, record []byte) (name, payload []byte, err error) {
	if err := checkSumAt(where, record); err != nil {
		return nil, nil, err
	}
	body := record[sumSize:]
	if !c.encrypts() {
		return at.key, body, nil
	}
	plain, err := c.values.open(body, where)
	if err != nil {
		return nil, nil, corrupt(errSeal)
	}
	r := reader{b: plain}
	name = r.bytes()
	if r.err != nil {
		return nil, nil, corrupt(r.err)
	}
	if len(name) == 0 {
		name = at.key
	}
	return name, r.b, nil
}

// checkSum reports a record that is not what was written to its place.
func checkSum(at place, record []byte) error { return checkSumAt(at.bytes(), record) }

func checkSumAt(where, record []byte) error {
	if len(record) < sumSize {
		return corrupt(errShort)
	}
	if binary.LittleEndian.Uint32(record) != sum(where, record[sumSize:]) {
		return corrupt(errChecksum)
	}
	return nil
}

func corrupt(err error) error { return fmt.Errorf("%w: %w", ErrCorrupt, err) }

// bytes is the same for no two places.
func (p place) bytes() []byte {
	return p.append(make([]byte, 0, 1+len(p.parent)+len(p.key)+binary.MaxVarintLen32))
}

func (p place) append(b []byte) []byte {
	b = append(b, byte(p.kind))
	b = appendBytes(b, p.parent)
	return append(b, p.key...)
}

func sum(where, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(where, castagnoli), castagnoli, body)
}

// openObject returns the bytes of an object's record. That they are still those whose Sum
// is in the object's key, the record's checksum says, which covers both: computing the Sum
// again would take as long as all the rest of reading a list.
func (c codec) openObject(key, record []byte) ([]byte, error) {
	_, b, err := c.open(place{kindObject, nil, key}, record)
	return b, err
}

// checkObject reports an object whose bytes are not those of its Sum.
func (c codec) checkObject(key, record []byte) error {
	name, b, err := c.open(place{kindObject, nil, key}, record)
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
