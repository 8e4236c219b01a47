package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// frameKind is the kind of a frame: a header of its own, and a sealed record. Its first bytes are frameMark.
type frameKind uint32

const (
	frameFront frameKind = 0xc0<<24 | frameMark // the record of a commit, before its bodies
	frameTail  frameKind = 0xc1<<24 | frameMark // the same record, behind them
	framePart  frameKind = 0xd0<<24 | frameMark // a part of a checkpoint
	frameLast  frameKind = 0xd1<<24 | frameMark // its last part
)

const frameMark = 0xb76765

// frame is the header of a frame. Its checksum covers the file's ID and the place of the frame, too.
type frame struct {
	kind   frameKind
	size   int    // of the record, in bytes
	number uint64 // of the commit, or of the one that follows the checkpoint
	part   uint32 // of a checkpoint, from 0
}

const frameHeader = 4 + 4 + 8 + 4 + 4

func (f frame) isCommit() bool { return f.kind == frameFront || f.kind == frameTail }

func (f frame) append(b []byte, id fileID, at int64) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.kind))
	b = binary.LittleEndian.AppendUint32(b, uint32(f.size))
	b = binary.LittleEndian.AppendUint64(b, f.number)
	b = binary.LittleEndian.AppendUint32(b, f.part)
	return binary.LittleEndian.AppendUint32(b, frameSum(id, at, b[start:]))
}

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
	le := binary.LittleEndian
	f = frame{frameKind(le.Uint32(b)), int(le.Uint32(b[4:])), le.Uint64(b[8:]), le.Uint32(b[16:])}
	return f, f.kind&0xffffff == frameMark && le.Uint32(b[frameHeader-4:]) == frameSum(id, at, b[:frameHeader-4])
}

// where is what the record of a frame is sealed with. Both copies of a commit are the same.
func (f frame) where(id fileID) []byte {
	kind := byte('c')
	if !f.isCommit() {
		kind = 'p'
	}
	b := append([]byte{kind}, id[:]...)
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(b, f.number), f.part)
}

// whereBody is what a body is sealed with, in any file.
func whereBody(sum Sum) []byte { return append([]byte{'b'}, sum[:]...) }

// readWindow is how many bytes of a file are read at once when it is scanned.
const readWindow = 256 << 10

// scanner reads the frames of a file one after the other.
type scanner struct {
	file interface {
		io.ReaderAt
		Name() string
	}
	id      fileID
	at      int64 // of the next frame
	size    int64 // of the file
	skipped bool  // something that is no frame

	buf  []byte
	from int64 // where buf begins in the file
}

// peek returns n bytes at a place, fewer at the end of the file. They are valid until the next call.
func (s *scanner) peek(at int64, n int) ([]byte, error) {
	if n = int(min(int64(n), s.size-at)); at < 0 || n <= 0 {
		return nil, nil
	}
	if at < s.from || at+int64(n) > s.from+int64(len(s.buf)) {
		size := int(min(int64(max(n, readWindow)), s.size-at))
		if cap(s.buf) < size {
			s.buf = make([]byte, size)
		}
		s.buf, s.from = s.buf[:size], at
		if _, err := readAt(s.file, s.buf, at); err != nil && !errors.Is(err, io.EOF) {
			s.buf = s.buf[:0]
			return nil, fmt.Errorf("read %s: %w", s.file.Name(), err)
		}
	}
	return s.buf[at-s.from:][:n], nil
}

// next returns the next frame, where it begins, and its record, which is shorter at the end of the file, and valid
// until the next call. What is no frame is skipped. The error is io.EOF if none follows.
func (s *scanner) next() (f frame, at int64, record []byte, err error) {
	for s.at+frameHeader <= s.size {
		b, err := s.peek(s.at, frameHeader)
		if err != nil {
			return f, s.at, nil, err
		}
		if f, ok := parseFrame(b, s.id, s.at); ok {
			at, s.at = s.at, s.at+frameHeader+int64(f.size)
			record, err = s.peek(at+frameHeader, f.size)
			return f, at, record, err
		}
		s.skipped = true
		if b, err = s.peek(s.at, readWindow); err != nil {
			return f, s.at, nil, err
		}
		// Of b at least the header of a frame was looked at, and what may be the beginning of one is looked at again.
		if n := bytes.Index(b[1:], []byte{frameMark & 0xff, frameMark >> 8 & 0xff, frameMark >> 16}); n >= 0 {
			s.at += 1 + int64(n)
		} else {
			s.at += max(1, int64(len(b)-2))
		}
	}
	return f, s.at, nil, io.EOF
}

// hasHole reports whether a part of a range was never written: it is beyond the end of the file, or in a sector that has nothing
// but zeros from where its batch begins, as one has that a power cut has kept from the disk.
func (s *scanner) hasHole(batch, at int64, size int) (bool, error) {
	const sector = 512
	for from := at / sector * sector; from < at+int64(size); from += sector {
		start, end := max(from, batch), from+sector
		b, err := s.peek(start, int(end-start))
		if err != nil {
			return false, err
		}
		if s.size < min(end, at+int64(size)) || len(bytes.Trim(b, "\x00")) == 0 {
			return true, nil
		}
	}
	return false, nil
}

// open returns the payload of a frame's record.
func (f frame) open(c codec, id fileID, record []byte) ([]byte, error) {
	return c.Open(f.where(id), record)
}
