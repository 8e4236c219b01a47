// Package seal encodes the records of the store: a CRC-32C, then the payload. The checksum also
// covers the record's place, which is its kind, its parent and its key: a record in the wrong place
// is as damaged as a changed one. With an encryption key, the payload is encrypted.
//
// A Codec is safe for concurrent use.
package seal

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Kind is the kind of a record.
type Kind byte

// The kinds.
const (
	KindMeta   Kind = 'i'
	KindObject Kind = 'o'
	KindPair   Kind = 'k' // its parent is the table's name
	KindCommit Kind = 'c' // its parent is the ID of the log
)

// Place is the place of a record in the file.
type Place struct {
	kind   Kind
	parent []byte
	key    []byte
}

// At returns a place. parent may be nil.
func At(kind Kind, parent, key []byte) Place { return Place{kind, parent, key} }

var (
	// ErrCorrupt is returned for a damaged record, together with the cause.
	ErrCorrupt = errors.New("damaged on disk")
	// ErrShort is the cause if bytes are missing.
	ErrShort = errors.New("cut short")
	// ErrSeal is the cause if the checksum is right, but the encryption key is wrong.
	ErrSeal = errors.New("it cannot be decrypted")

	errChecksum = errors.New("its checksum is wrong")
)

// Codec encodes and decodes records. The zero Codec does not encrypt.
type Codec struct {
	values *xaes // nil without a key
}

// New returns a Codec for an encryption key, or for none if key is nil.
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
	return Codec{newXAES([32]byte(values))}, nil
}

// Encrypts reports whether there is a key.
func (c Codec) Encrypts() bool { return c.values != nil }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumSize = 4

// Seal returns the record of a payload.
func (c Codec) Seal(at Place, payload []byte) []byte {
	where := at.Bytes()
	record := make([]byte, sumSize, sumSize+len(payload)+xaesOverhead)
	if c.Encrypts() {
		record = c.values.seal(record, payload, where)
	} else {
		record = append(record, payload...)
	}
	binary.LittleEndian.PutUint32(record, sum(where, record[sumSize:]))
	return record
}

// Open returns the payload of a record. Without encryption, it is a part of the record, not a copy.
func (c Codec) Open(at Place, record []byte) (payload []byte, err error) {
	return c.OpenAt(at.Bytes(), record)
}

// OpenAt is Open for a caller that has the place's Bytes.
func (c Codec) OpenAt(where, record []byte) (payload []byte, err error) {
	if err := checkSumAt(where, record); err != nil {
		return nil, err
	}
	body := record[sumSize:]
	if !c.Encrypts() {
		return body, nil
	}
	plain, err := c.values.open(body, where)
	if err != nil {
		return nil, corrupt(ErrSeal)
	}
	return plain, nil
}

// CheckSum returns an error for a record that was not written to this place.
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

// Bytes returns an encoding of the place that no other place has.
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
