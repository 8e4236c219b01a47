package log

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// formatVersion is the version of the file's format.
const formatVersion = 1

const (
	magic = "edgehub\n"
	// slotSpace is how far the two slots of the header are apart: a sector that a disk cannot read has 4 KiB at most.
	slotSpace  = 4 << 10
	headerSize = 2 * slotSpace
	slotSize   = 256
)

// fileID is random. All checksums cover it, so nobody can put bytes into a body that are taken for a
// record when damage has to be skipped.
type fileID [16]byte

func newID() (id fileID) {
	rand.Read(id[:]) // never fails
	return id
}

// identity is in both slots.
type identity struct {
	id      fileID
	created time.Time // to the second
}

// slot names a checkpoint.
type slot struct {
	number  uint64 // of the commit that follows the checkpoint
	parts   int64  // where its parts begin
	commits int64  // where the commit begins
}

// append appends the slot with its identity: magic, version, whether the file is encrypted, its ID, when it was
// created, the checkpoint, a sealed record that shows whether a key is the right one, and a checksum.
func (s slot) append(b []byte, of identity, c codec) []byte {
	start := len(b)
	b = append(b, magic...)
	b = append(b, formatVersion, 0)
	if c.Encrypts() {
		b[len(b)-1] = 1
	}
	b = append(b, of.id[:]...)
	for _, n := range []uint64{uint64(of.created.Unix()), s.number, uint64(s.parts), uint64(s.commits)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = c.Append(b, whereKey(of.id), nil)
	b = append(b, make([]byte, slotSize-4-(len(b)-start))...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func whereKey(id fileID) []byte { return append([]byte{'k'}, id[:]...) }

// parseSlot returns what append has appended. Its error is ErrKey, or ErrCorrupt, with ErrFormat if a hub of another
// version has written the file.
func parseSlot(b []byte, c codec) (of identity, s slot, err error) {
	switch {
	case len(b) <= len(magic) || !bytes.HasPrefix(b, []byte(magic)):
		return of, s, corrupt(errHeader)
	case b[len(magic)] != formatVersion:
		return of, s, corrupt(fmt.Errorf("%w: its format is %d, this hub's is %d", ErrFormat, b[len(magic)], formatVersion))
	case len(b) < slotSize || binary.LittleEndian.Uint32(b[slotSize-4:]) != crc32.Checksum(b[:slotSize-4], castagnoli):
		return of, s, corrupt(errHeader)
	}
	encrypted := b[len(magic)+1] == 1
	b = b[len(magic)+2:]
	copy(of.id[:], b)
	b = b[len(of.id):]
	field := func(n int) uint64 { return binary.LittleEndian.Uint64(b[8*n:]) }
	of.created = time.Unix(int64(field(0)), 0)
	s = slot{number: field(1), parts: int64(field(2)), commits: int64(field(3))}
	switch _, err := c.Open(whereKey(of.id), b[4*8:][:c.Size(0)]); {
	case encrypted && !c.Encrypts():
		return of, s, fmt.Errorf("%w: the file is encrypted, and no key was given", ErrKey)
	case !encrypted && c.Encrypts():
		return of, s, fmt.Errorf("%w: the file is not encrypted; remove it to start an encrypted one", ErrKey)
	case err != nil:
		return of, s, fmt.Errorf("%w: the file was written with another one; give that one, or remove the file", ErrKey)
	}
	return of, s, nil
}

var errHeader = errors.New("its header")
