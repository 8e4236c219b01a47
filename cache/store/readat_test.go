package store

import (
	"bytes"
	"fmt"
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

// A sector that cannot be read is damage like any other: what follows it in the file is found.
func TestABadSectorIsSkipped(t *testing.T) {
	id, record := newID(), bytes.Repeat([]byte("record"), 1000)
	var file []byte
	for n := range 20 {
		file = frame{frameCommit, len(record), uint64(n + 1)}.append(file, id, int64(len(file)))
		file = append(file, record...)
	}
	size := frameHeader + len(record)
	for _, bad := range []int64{0, int64(5*size + 3), int64(7*size + 500)} {
		r := &frames{file: badSector{bytes.NewReader(file), bad}, id: id, size: int64(len(file))}
		last := uint64(0)
		for {
			f, _, _, ok, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			last = f.commit
			r.buf = r.buf[:0] // as after a window
		}
		if last != 20 {
			t.Errorf("with a bad sector at %d the last frame is %d, want 20", bad, last)
		}
	}
}
