package log

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
)

// badSector is a file of which one byte cannot be read.
type badSector struct {
	*bytes.Reader
	at int64
}

func (b badSector) Name() string { return "bad" }

func (b badSector) ReadAt(p []byte, at int64) (int, error) {
	if at <= b.at && b.at < at+int64(len(p)) {
		n, _ := b.Reader.ReadAt(p[:b.at-at], at)
		return n, fmt.Errorf("read: %w", syscall.EIO)
	}
	return b.Reader.ReadAt(p, at)
}

// numbers are those of the frames that a scanner finds.
func numbers(t *testing.T, file badSector, id fileID) (found []uint64) {
	t.Helper()
	s := &scanner{file: file, id: id, size: file.Size()}
	for {
		f, _, _, err := s.next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, f.number)
		s.buf = s.buf[:0] // as after a window
	}
}

func someFrames(id fileID, n int) (file []byte, size int) {
	record := bytes.Repeat([]byte("record"), 1000)
	for n := range n {
		file = frame{kind: frameFront, size: len(record), number: uint64(n + 1)}.append(file, id, int64(len(file)))
		file = append(file, record...)
	}
	return file, len(file) / n
}

// A sector that cannot be read is damage like any other: what follows it in the file is found.
func TestABadSectorIsSkipped(t *testing.T) {
	id := newID()
	file, size := someFrames(id, 20)
	for _, bad := range []int64{0, int64(5*size + 3), int64(7*size + 500)} {
		if found := numbers(t, badSector{bytes.NewReader(file), bad}, id); found[len(found)-1] != 20 {
			t.Errorf("with a bad sector at %d the last frame is %d, want 20", bad, found[len(found)-1])
		}
	}
}

func TestAFrameInAnotherPlaceOrFileIsNone(t *testing.T) {
	id := newID()
	file, size := someFrames(id, 20)
	if found := numbers(t, badSector{bytes.NewReader(file), -1}, id); len(found) != 20 {
		t.Fatalf("frames %v", found)
	}
	if found := numbers(t, badSector{bytes.NewReader(file), -1}, newID()); len(found) != 0 {
		t.Errorf("another file has frames %v", found)
	}
	if found := numbers(t, badSector{bytes.NewReader(file[size:]), -1}, id); len(found) != 0 {
		t.Errorf("in another place there are frames %v", found)
	}
}
