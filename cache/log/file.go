package log

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// place is where a sealed body is in a file.
type place struct {
	at   int64
	size uint32
	// whole is set if this process has written the body, or compared it with one that was given.
	whole bool
}

// file is a log on disk. Log.write guards what is not said to be guarded otherwise.
type file struct {
	identity
	name     string
	slots    [2]slot
	end      int64 // where the next commit will be; the file may be longer, or have been cut
	size     int64 // of the last checkpoint, in bytes
	needed   int64 // about what of the file is needed, in bytes
	garbage  bool  // something that was deleted may be in the file
	unsound  bool  // something was found damaged: the file is to be replaced; guarded by Log.mu
	named    bool  // the folder was synced since the file got its name
	readOnly bool

	index map[Sum]place // of the bodies that a start knows; guarded by Log.mu
	// dead are bodies that nothing needs any more, except perhaps Readers; guarded by Log.mu.
	dead    map[Sum]place
	readers int       // guarded by Log.mu
	retired time.Time // when the file was replaced; guarded by Log.mu

	mu sync.RWMutex // guards os; held, shared, while that is used to read
	os *os.File     // nil when the file is closed
}

// find returns where a body is. Log.mu must be held.
func (f *file) find(sum Sum) (place, bool) {
	if f == nil {
		return place{}, false
	}
	if p, ok := f.index[sum]; ok {
		return p, true
	}
	p, ok := f.dead[sum]
	return p, ok
}

// read fills b with what is at a place. What is beyond the end of the file is zero.
func (f *file) read(b []byte, at int64) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.os == nil {
		return ErrCut
	}
	n, err := readAt(f.os, b, at)
	if err != nil && n < len(b) {
		if !isEOF(err) {
			return fmt.Errorf("read %s: %w", f.name, err)
		}
		clear(b[n:]) // the file was cut: a checksum will not match
	}
	return nil
}

// take returns the file's descriptor, which nobody uses any more, or nil if it was taken before.
func (f *file) take() *os.File {
	f.mu.Lock()
	defer f.mu.Unlock()
	fd := f.os
	f.os = nil
	return fd
}

// writeSlot writes the slot of a checkpoint over that of the one before the last.
func (f *file) writeSlot(s slot, c codec) error {
	n := 0
	if f.slots[0].number > f.slots[1].number {
		n = 1
	}
	if _, err := f.os.WriteAt(s.append(nil, f.identity, c), int64(n)*slotSpace); err != nil {
		return err
	}
	f.slots[n] = s
	return nil
}

// newest returns the slot of the last checkpoint.
func (f *file) newest() slot {
	if f.slots[1].number > f.slots[0].number {
		return f.slots[1]
	}
	return f.slots[0]
}

// readAt is f.ReadAt, but for sectors that the disk cannot read: what is in them is zero, like that of other
// damage, and a checksum will not match.
func readAt(f io.ReaderAt, b []byte, at int64) (int, error) {
	n, err := f.ReadAt(b, at)
	if !errors.Is(err, syscall.EIO) {
		return n, err
	}
	for n = 0; n < len(b); {
		piece := b[n:min(n+sector-int((at+int64(n))%sector), len(b))]
		got, err := f.ReadAt(piece, at+int64(n))
		if errors.Is(err, syscall.EIO) {
			clear(piece[got:])
			got, err = len(piece), nil
		}
		if n += got; err != nil {
			return n, err
		}
	}
	return n, nil
}

// sector is the size of what a disk can read or not, in bytes: that of a page of the kernel's cache.
const sector = 4 << 10

// writer appends to a file what a batch writes. Nothing of it counts before the file is synced.
type writer struct {
	to    *os.File
	id    fileID
	codec codec
	at    int64 // where the next byte will be
	buf   []byte
	err   error
}

// maxWrite is about how many bytes are written at once.
const maxWrite = 1 << 20

// frame appends a frame with a sealed record.
func (w *writer) frame(f frame, record []byte) {
	f.size = len(record)
	w.append(f.append(make([]byte, 0, frameHeader), w.id, w.at))
	w.append(record)
}

// seal seals the payload of a frame.
func (w *writer) seal(f frame, payload []byte) []byte {
	return w.codec.Append(make([]byte, 0, w.codec.Size(len(payload))), f.where(w.id), payload)
}

// body seals and appends a body, and returns its place.
func (w *writer) body(b *Body) place {
	before := len(w.buf)
	w.buf = w.codec.Append(w.buf, whereBody(b.Sum), b.Bytes)
	return w.appended(len(w.buf) - before)
}

func (w *writer) append(b []byte) place {
	w.buf = append(w.buf, b...)
	return w.appended(len(b))
}

func (w *writer) appended(size int) place {
	p := place{at: w.at, size: uint32(size), whole: true}
	if w.at += int64(size); len(w.buf) >= maxWrite {
		w.flush()
	}
	return p
}

func (w *writer) flush() {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.to.WriteAt(w.buf, w.at-int64(len(w.buf)))
	}
	w.buf = w.buf[:0]
}
