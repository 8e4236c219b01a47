package log

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

var (
	// errShort is the cause if bytes are missing.
	errShort = errors.New("cut short")
	// errSeal is the cause if the checksum is right, but the encryption key is wrong.
	errSeal = errors.New("it cannot be decrypted")

	errChecksum = errors.New("its checksum is wrong")
	// errOther is the cause if a body has another sum than its place says.
	errOther = errors.New("its content is another one")
)

// codec encodes records: a CRC-32C, then the payload. The checksum also covers where the record belongs, which is not stored: a
// record in the wrong place is as damaged as a changed one. With an encryption key, the payload is encrypted, and authenticated
// together with its place. The zero codec does not encrypt. It is safe for concurrent use.
type codec struct {
	values *xaes // nil without a key
}

// newCodec returns a codec for an encryption key of 32 bytes, or for none if key is nil.
func newCodec(key []byte) (codec, error) {
	if key == nil {
		return codec{}, nil
	}
	if len(key) != 32 {
		return codec{}, fmt.Errorf("an encryption key has 32 bytes, this one has %d", len(key))
	}
	values, err := hkdf.Key(sha256.New, key, nil, "edgehub cache log", 32)
	if err != nil {
		return codec{}, err
	}
	return codec{newXAES([32]byte(values))}, nil
}

// Encrypts reports whether there is a key.
func (c codec) Encrypts() bool { return c.values != nil }

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a constant

const sumSize = 4

// Size returns the size of a record, in bytes, whose payload has size bytes.
func (c codec) Size(size int) int {
	if c.Encrypts() {
		size += xaesOverhead
	}
	return sumSize + size
}

// Append appends the record of a payload to dst. where is unique to the record's place.
func (c codec) Append(dst, where, payload []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, sumSize)...)
	if c.Encrypts() {
		dst = c.values.seal(dst, payload, where)
	} else {
		dst = append(dst, payload...)
	}
	binary.LittleEndian.PutUint32(dst[start:], sum(where, dst[start+sumSize:]))
	return dst
}

// Open returns the payload of a record. Without encryption, it is a part of the record, not a copy.
func (c codec) Open(where, record []byte) (payload []byte, err error) {
	if err := checkSum(where, record); err != nil {
		return nil, err
	}
	body := record[sumSize:]
	if !c.Encrypts() {
		return body, nil
	}
	plain, err := c.values.open(body, where)
	if err != nil {
		return nil, corrupt(errSeal)
	}
	return plain, nil
}

// checkSum returns an error for a record that was not written to this place, without decrypting it.
func checkSum(where, record []byte) error {
	if len(record) < sumSize {
		return corrupt(errShort)
	}
	if binary.LittleEndian.Uint32(record) != sum(where, record[sumSize:]) {
		return corrupt(errChecksum)
	}
	return nil
}

func sum(where, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(where, castagnoli), castagnoli, body)
}
