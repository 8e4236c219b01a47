// Package seal writes and reads the records of the store: values with a checksum, and with
// encryption if there is a key.
//
// A record is a value in the file: a CRC-32C, then the payload. The checksum
// covers the kind of the record, what it belongs to, and its key: a record that
// was moved is as damaged as one that was changed. With encryption, the payload
// is sealed together with the name that its key hides.
//
// A Codec is safe for concurrent use.
package seal

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Kind distinguishes the records of different buckets.
type Kind byte

// The kinds.
const (
	KindMeta         Kind = 'i'
	KindView         Kind = 'v'
	KindMember       Kind = 'm' // belongs to a view's ID
	KindObject       Kind = 'o'
	KindRefs         Kind = 'r' // its key is an object's
	KindUnreferenced Kind = 't' // its key is an object's
	KindPair         Kind = 'k' // belongs to a table
)

// Place is where a record lies.
type Place struct {
	kind   Kind
	parent []byte
	key    []byte
}

// At is the place of a record of a kind with a key; parent is what it belongs to, if anything.
func At(kind Kind, parent, key []byte) Place { return Place{kind, parent, key} }

var (
	// ErrCorrupt is returned for a damaged record. It wraps what is wrong with it.
	ErrCorrupt = errors.New("damaged on disk")
	// ErrShort is the cause where bytes are missing.
	ErrShort = errors.New("cut short")
	// ErrSeal is the cause where the checksum is right, and the key is another one.
	ErrSeal = errors.New("it cannot be decrypted")

	errChecksum = errors.New("its checksum is wrong")
)

// Codec writes and reads records. The zero Codec does not encrypt.
type Codec struct {
	values *xaes
	names  []byte // the HMAC key for names
}

// New returns a Codec for an encryption key, nil for none.
func New(key []byte) (Codec, error) {
	if key == nil {
		return Codec{}, nil
	}
	if len(key) != 32 {
		return Codec{}, fmt.Errorf("an encryption key has 32 bytes, this one has %d", len(key))
	}
	values, err := hkdf.Key(sha256.New, key, nil, "edgehub cache values", 32)
	if err != nil {
		return Codec{}, err
	}
	names, err := hkdf.Key(sha256.New, key, nil, "edgehub cache names", 32)
	return Codec{values: newXAES([32]byte(values)), names: names}, err
}

// Encrypts reports whether there is a key.
func (c Codec) Encrypts() bool { return c.values != nil }

// HashKey returns the key that a name is stored under: the name, or 16 bytes that
// tell nothing about it.
func (c Codec) HashKey(k Kind, parent, name []byte) []byte {
	if !c.Encrypts() {
		return name
	}
	mac := hmac.New(sha256.New, c.names)
	mac.Write(Place{k, parent, name}.Bytes())
	return mac.Sum(nil)[:16]
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumSize = 4

// Seal returns the record for payload. The name is kept with it if the key
// hides it; records whose keys hide nothing have no name.
func (c Codec) Seal(at Place, name, payload []byte) []byte {
	where := at.Bytes()
	record := make([]byte, sumSize, sumSize+len(payload)+len(name)+xaesOverhead+binary.MaxVarintLen32)
	if c.Encrypts() {
		plain := AppendBytes(make([]byte, 0, cap(record)), name)
		record = c.values.seal(record, append(plain, payload...), where)
	} else {
		record = append(record, payload...)
	}
	binary.LittleEndian.PutUint32(record, sum(where, record[sumSize:]))
	return record
}

// Open returns the payload of a record, and the name its key stands for. Without
// encryption both are part of the arguments, not copies.
func (c Codec) Open(at Place, record []byte) (name, payload []byte, err error) {
	return c.OpenAt(at, at.Bytes(), record)
}

// OpenAt is Open for whoever has the place's bytes.
func (c Codec) OpenAt(at Place, where, record []byte) (name, payload []byte, err error) {
	if err := checkSumAt(where, record); err != nil {
		return nil, nil, err
	}
	body := record[sumSize:]
	if !c.Encrypts() {
		return at.key, body, nil
	}
	plain, err := c.values.open(body, where)
	if err != nil {
		return nil, nil, corrupt(ErrSeal)
	}
	r := Fields{Rest: plain}
	name = r.Bytes()
	if r.Err != nil {
		return nil, nil, corrupt(r.Err)
	}
	if len(name) == 0 {
		name = at.key
	}
	return name, r.Rest, nil
}

// CheckSum reports a record that is not what was written to its place.
func CheckSum(at Place, record []byte) error { return checkSumAt(at.Bytes(), record) }

func checkSumAt(where, record []byte) error {
	if len(record) < sumSize {
		return corrupt(ErrShort)
	}
	if binary.LittleEndian.Uint32(record) != sum(where, record[sumSize:]) {
		return corrupt(errChecksum)
	}
	return nil
}

func corrupt(err error) error { return fmt.Errorf("%w: %w", ErrCorrupt, err) }

// Bytes is the same for no two places.
func (p Place) Bytes() []byte {
	return p.Append(make([]byte, 0, 1+len(p.parent)+len(p.key)+binary.MaxVarintLen32))
}

// Append appends Bytes to b.
func (p Place) Append(b []byte) []byte {
	b = append(b, byte(p.kind))
	b = AppendBytes(b, p.parent)
	return append(b, p.key...)
}

func sum(where, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(where, castagnoli), castagnoli, body)
}

// ChecksumOf stands for a record: its checksum covers all the rest of it.
func ChecksumOf(record []byte) string { return string(record[:min(sumSize, len(record))]) }
