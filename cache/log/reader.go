package log

import (
	"fmt"
	"sync"
)

// readChunk is how many bytes of bodies a Reader reads at once, or one body if that is larger.
const readChunk = 256 << 10

// Body returns a body, which nobody may change. The error is ErrCorrupt if it is damaged or missing, ErrNotOpen, or one of
// the disk.
func (l *Log) Body(sum Sum) (b []byte, err error) {
	r := l.NewReader()
	defer r.Close()
	_, err = r.Read([]Sum{sum}, func(_ int, body []byte) error {
		b = body // nothing else is read into its buffer
		return nil
	})
	return b, err
}

// Reader reads bodies. As long as it is open, bodies that were there when it was opened can be read, whatever
// is deleted, for an hour after the file was replaced. So a caller that opens a Reader and then takes the rows of a
// table can read all of them. It is for one goroutine at a time.
type Reader struct {
	log   *Log
	file  *file // when it was opened; may be nil
	close func()

	buf   []byte
	reads []read
}

// read is a body that is read.
type read struct {
	bytes []byte // if it waits for a commit
	file  *file
	place
	start int // in Reader.buf
}

// NewReader returns a Reader, which must be closed.
func (l *Log) NewReader() *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &Reader{log: l, file: l.file}
	l.readers++
	l.next.read = true
	if r.file != nil {
		r.file.readers++
	}
	r.close = sync.OnceFunc(r.release)
	return r
}

// Close lets go what was kept for the Reader.
func (r *Reader) Close() { r.close() }

func (r *Reader) release() {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers--; l.readers == 0 {
		l.next.read = false // what was kept for it is written once, and then not needed
	}
	if r.file == nil {
		return
	}
	if r.file.readers--; r.file.readers == 0 && r.file != l.file {
		wake(l.look)
	}
}

// Read calls each for the first of bodies, as many as are read at once (256 KiB, or one that is larger), and
// returns their number, which is also the index of the one that has caused an error. The bytes are valid until the next
// Read, and nobody may change them.
//
// The error is ErrCorrupt if a body is damaged or missing, ErrCut, ErrNotOpen, or one of the disk or of each. Those
// before it were read.
func (r *Reader) Read(bodies []Sum, each func(n int, body []byte) error) (int, error) {
	failed := r.fill(bodies)
	for n := range r.reads {
		b, err := r.open(bodies[n], &r.reads[n])
		if err != nil {
			return n, fmt.Errorf("read body: %w", err)
		}
		if err := each(n, b); err != nil {
			return n, err
		}
	}
	if failed != nil {
		return len(r.reads), fmt.Errorf("read body: %w", failed)
	}
	return len(r.reads), nil
}

// open returns the bytes of a body that was read.
func (r *Reader) open(sum Sum, at *read) ([]byte, error) {
	if at.bytes != nil {
		return at.bytes, nil
	}
	b, err := r.log.codec.Open(whereBody(sum), r.buf[at.start:][:at.size])
	if err != nil {
		r.log.damaged(at.file, sum, at.place, err)
	}
	return b, err
}

// fill reads the first of bodies. Those that are next to each other in the file are read together. The error is of the
// first one that could not be read, if all before it were.
func (r *Reader) fill(bodies []Sum) error {
	size, failed := r.find(bodies)
	if cap(r.buf) < size {
		r.buf = make([]byte, size)
	}
	r.buf = r.buf[:size]
	for first := 0; first < len(r.reads); {
		from := &r.reads[first]
		end, next := from.at+int64(from.size), first+1
		for ; from.bytes == nil && next < len(r.reads) && r.reads[next].bytes == nil && r.reads[next].at == end && r.reads[next].file == from.file; next++ {
			end += int64(r.reads[next].size)
		}
		if from.bytes == nil {
			if err := from.file.read(r.buf[from.start:][:end-from.at], from.at); err != nil {
				r.reads = r.reads[:first]
				return err
			}
		}
		first = next
	}
	return failed
}

// find finds where the first of bodies are, and returns how many bytes of buf these take.
func (r *Reader) find(bodies []Sum) (size int, err error) {
	l := r.log
	l.mu.RLock()
	defer l.mu.RUnlock()
	r.reads = r.reads[:0]
	for _, sum := range bodies {
		if b := l.bytesLocked(sum); b != nil {
			r.reads = append(r.reads, read{bytes: b})
			continue
		}
		f := r.file
		p, ok := f.find(sum)
		if now, isNow := l.file.find(sum); isNow && (!ok || !f.retired.IsZero()) { // an old file may be cut
			f, p, ok = l.file, now, true
		}
		switch {
		case !ok && l.file == nil:
			return size, ErrNotOpen
		case !ok:
			return size, errMissing
		case size > 0 && size+int(p.size) > readChunk:
			return size, nil
		}
		r.reads = append(r.reads, read{file: f, place: p, start: size})
		size += int(p.size)
	}
	return size, nil
}

// bytesLocked returns the bytes of a body that waits for a commit, or nil.
func (l *Log) bytesLocked(sum Sum) []byte {
	if b := l.next.body(sum); b != nil {
		return b
	}
	return l.current.body(sum)
}

// damaged forgets a body that cannot be read at a place, so that it is written when it is given again.
func (l *Log) damaged(f *file, sum Sum, at place, err error) {
	l.mu.Lock()
	now, isNew := f.index[sum]
	if isNew = isNew && now.at == at.at; isNew {
		delete(f.index, sum)
		f.unsound = true
	}
	isNew = isNew && f == l.file
	l.mu.Unlock()
	if isNew {
		l.state.Damaged(sum, err)
	}
}

// Lend makes the Reader read into a buffer of the caller.
func (r *Reader) Lend(buf []byte) { r.buf = buf[:0] }

// Reclaim returns that buffer, or a larger one that has replaced it. Bodies in it are then no longer valid.
func (r *Reader) Reclaim() []byte {
	buf := r.buf
	r.buf, r.reads = nil, r.reads[:0]
	return buf
}
