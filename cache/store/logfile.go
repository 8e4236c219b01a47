package store

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// formatVersion is the version of the files' format. Versions 1 and 2 were files of bbolt; 3 was never released.
const formatVersion = 4

// fileID is random, and the same in a log and its index. All checksums of frames cover it: so
// nobody can put bytes into an object that are taken for a frame when damage has to be skipped.
type fileID [16]byte

const (
	magic      = "edgehub\n"
	headerSize = 128
	// checkAt is where the sealed check of the key begins in the header of a file, with its length.
	checkAt = len(magic) + 2 + len(fileID{})
	// createdAt is where the time of its creation is, in Unix seconds.
	createdAt = headerSize - 4 - 8
)

// fileHeader returns the header of a log or index: magic, version, whether it is encrypted, ID, a
// record that shows whether the key is the right one, zeros, when it was created, and a checksum.
func fileHeader(id fileID, created time.Time, c seal.Codec) []byte {
	b := append(make([]byte, 0, headerSize), magic...)
	b = append(b, formatVersion, 0)
	if c.Encrypts() {
		b[len(b)-1] = 1
	}
	b = append(b, id[:]...)
	b = seal.AppendBytes(b, c.Seal(seal.At(seal.KindMeta, nil, id[:]), nil))
	b = append(b, make([]byte, createdAt-len(b))...)
	b = binary.LittleEndian.AppendUint64(b, uint64(created.Unix()))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseHeader returns the ID of a file, and when it was created. Its error is ErrKey, or ErrCorrupt, with
// ErrFormat if another version has written the file.
func parseHeader(b []byte, c seal.Codec) (id fileID, created time.Time, err error) {
	switch {
	case len(b) < headerSize || !bytes.HasPrefix(b, []byte(magic)) ||
		binary.LittleEndian.Uint32(b[headerSize-4:]) != crc32.Checksum(b[:headerSize-4], castagnoli):
		return id, created, corrupt(errors.New("its header"))
	case b[len(magic)] != formatVersion:
		return id, created, corrupt(fmt.Errorf("%w: its format is %d, this hub's is %d", ErrFormat, b[len(magic)], formatVersion))
	}
	switch encrypted := b[len(magic)+1] == 1; {
	case encrypted && !c.Encrypts():
		return id, created, fmt.Errorf("%w: the file is encrypted, and no key was given", ErrKey)
	case !encrypted && c.Encrypts():
		return id, created, fmt.Errorf("%w: the file is not encrypted; remove it to start an encrypted one", ErrKey)
	}
	copy(id[:], b[len(magic)+2:])
	r := seal.Fields{Rest: b[checkAt:createdAt]}
	if _, err := c.Open(seal.At(seal.KindMeta, nil, id[:]), r.Bytes()); errors.Is(err, seal.ErrSeal) {
		return id, created, fmt.Errorf("%w: the file was written with another one; give that one, or remove the file", ErrKey)
	} else if err != nil {
		return id, created, err
	}
	return id, time.Unix(int64(binary.LittleEndian.Uint64(b[createdAt:])), 0), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameKind is the kind of a frame. After the header, a file consists of frames. Each has a header of
// its own: kind, length of its body, number of its commit, checksum. It has no checksum of the body,
// which is made of sealed records that have one each.
type frameKind uint32

const (
	frameBodies frameKind = 0xb0d1e500 // sealed objects and values
	frameCommit frameKind = 0xc0331700 // one sealed record: see commitRecord
)

const frameHeader = 4 + 4 + 8 + 4

type frame struct {
	kind   frameKind
	size   int // of the body, in bytes
	commit uint64
}

func (f frame) append(b []byte, id fileID, at int64) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.kind))
	b = binary.LittleEndian.AppendUint32(b, uint32(f.size))
	b = binary.LittleEndian.AppendUint64(b, f.commit)
	return binary.LittleEndian.AppendUint32(b, frameSum(id, at, b[start:]))
}

// frameSum covers the place of a frame: one in the wrong place is damage.
func frameSum(id fileID, at int64, header []byte) uint32 {
	var place [8]byte
	binary.LittleEndian.PutUint64(place[:], uint64(at))
	return crc32.Update(crc32.Update(crc32.Checksum(id[:], castagnoli), castagnoli, place[:]), castagnoli, header)
}

// parseFrame parses the header of a frame at a place in a file.
func parseFrame(b []byte, id fileID, at int64) (f frame, ok bool) {
	if len(b) < frameHeader {
		return f, false
	}
	f = frame{frameKind(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:])), binary.LittleEndian.Uint64(b[8:])}
	if f.kind != frameBodies && f.kind != frameCommit {
		return f, false
	}
	return f, binary.LittleEndian.Uint32(b[16:]) == frameSum(id, at, b[:16])
}

// readWindow is how many bytes of a log are read at once when it is replayed.
const readWindow = 256 << 10

// frames reads the frames of a file one after the other.
type frames struct {
	file interface {
		io.ReaderAt
		Name() string
	}
	id   fileID
	at   int64 // of the next frame
	size int64 // of the file
	buf  []byte
	from int64 // where buf begins in the file
}

// peek returns n bytes at a place, fewer at the end of the file. They are valid until the next call.
func (r *frames) peek(at int64, n int) ([]byte, error) {
	n = int(max(min(int64(n), r.size-at), 0))
	if at < r.from || at+int64(n) > r.from+int64(len(r.buf)) {
		size := int(min(int64(max(n, readWindow)), r.size-at))
		if cap(r.buf) < size {
			r.buf = make([]byte, size)
		}
		r.buf, r.from = r.buf[:size], at
		if _, err := readAt(r.file, r.buf, at); err != nil && !errors.Is(err, io.EOF) {
			r.buf = r.buf[:0]
			return nil, fmt.Errorf("read %s: %w", r.file.Name(), err)
		}
	}
	return r.buf[at-r.from:][:n], nil
}

// next returns the next frame and where it begins. After damage it looks for the next frame there is,
// and reports the damage. At the end of the file, or if nothing follows, ok is false.
func (r *frames) next() (f frame, at int64, skipped, ok bool, err error) {
	for at = r.at; at+frameHeader <= r.size; at++ {
		b, err := r.peek(at, frameHeader)
		if err != nil {
			return f, at, skipped, false, err
		}
		if f, ok = parseFrame(b, r.id, at); ok {
			r.at = at + frameHeader + int64(f.size)
			return f, at, skipped, true, nil
		}
		skipped = true
	}
	return f, at, skipped, false, nil
}

// newID returns a random ID.
func newID() (id fileID) {
	rand.Read(id[:]) // never fails
	return id
}

// appender appends frames to a log.
type appender struct {
	file   *os.File
	id     fileID
	commit uint64
	at     int64  // where buf will be written
	buf    []byte // a frame of bodies, with room for its header
	err    error
}

// maxBodies is the size above which a frame of bodies is written, in bytes.
const maxBodies = 1 << 20

// body appends a sealed record to the bodies, and returns its place.
func (a *appender) body(record []byte) place {
	if len(a.buf) > 0 && len(a.buf)+len(record) > maxBodies {
		a.flush()
	}
	if len(a.buf) == 0 {
		a.buf = append(a.buf, make([]byte, frameHeader)...)
	}
	p := place{at: a.at + int64(len(a.buf)), size: uint32(len(record))}
	a.buf = append(a.buf, record...)
	return p
}

// flush writes the bodies as a frame.
func (a *appender) flush() {
	if len(a.buf) == 0 {
		return
	}
	frame{frameBodies, len(a.buf) - frameHeader, a.commit}.append(a.buf[:0], a.id, a.at)
	a.write(a.buf)
	a.buf = a.buf[:0]
}

// end writes the bodies, and the frame of a commit.
func (a *appender) end(record []byte) {
	a.flush()
	b := frame{frameCommit, len(record), a.commit}.append(make([]byte, 0, frameHeader+len(record)), a.id, a.at)
	a.write(append(b, record...))
}

func (a *appender) write(b []byte) {
	if a.err == nil {
		_, a.err = a.file.WriteAt(b, a.at)
	}
	a.at += int64(len(b))
}
