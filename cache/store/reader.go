package store

import (
	"errors"
	"fmt"
	"sync"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// readChunk is how many bytes of objects are read at once, or one object if that is larger.
const readChunk = 256 << 10

// Reader reads objects of a view, whose names and versions the caller knows. While it is open,
// objects that commits remove are kept for an hour, if they are not too many: a caller that opens a Reader and then
// takes the members of the view can read all of them. It is for one goroutine at a time.
type Reader struct {
	store *Store
	id    ID // of the view
	scope string
	close func()

	buf     []byte // records of the objects of one Read
	pending []pendingRecord
	where   []byte // buffer for the place of an object
}

// pendingRecord is an object that is read: where its record is in the log, and in Reader.buf.
type pendingRecord struct {
	place
	start int
}

// NewReader returns a Reader of a view whose objects are of one scope. It must be closed.
func (s *Store) NewReader(id ID, scope string) *Reader {
	s.readers.Add(1)
	return &Reader{store: s, id: id, scope: scope, close: sync.OnceFunc(func() { s.readers.Add(-1) })}
}

// Read calls each for the first of members, as many as are read at once (256 KiB, or one that
// is larger), and returns their number. An object's bytes are valid until the next Read. The
// error is ErrChanged if an object was removed by a commit, and is not kept any more; ErrCorrupt if it is damaged, or has
// another size than the member; or that of each. Objects before a damaged one are read.
func (r *Reader) Read(members []Member, each func(Object) error) (int, error) {
	if err := r.fill(members); err != nil {
		return 0, fmt.Errorf("read objects: %w", err)
	}
	for i, p := range r.pending {
		m := members[i]
		b, err := r.open(m, p)
		if err != nil {
			return i, fmt.Errorf("read objects: %w", ofView(r.id, m.Name, err))
		}
		if err := each(Object{m.Name, m.ResourceVersion, m.Sum, b}); err != nil {
			return i, err
		}
	}
	return len(r.pending), nil
}

// open returns the bytes of an object that has been read.
func (r *Reader) open(m Member, p pendingRecord) ([]byte, error) {
	key := ObjectKey{r.scope, m.Name, m.ResourceVersion, m.Sum}
	r.where = key.at().Append(r.where[:0])
	b, err := r.store.codec.OpenAt(r.where, r.buf[p.start:p.start+int(p.size)])
	if err == nil && len(b) != m.Size {
		err = corrupt(errSize)
	}
	if err != nil && r.store.damaged(key, p.place) {
		r.store.opts.Damaged(ofView(r.id, m.Name, err))
	}
	return b, err
}

var errSize = errors.New("its size is not that of the member")

// fill reads the records of the first objects of members into buf. Those that are next to each
// other in the log are read together.
func (r *Reader) fill(members []Member) error {
	r.pending = r.pending[:0]
	s := r.store
	s.file.RLock() // the log is not replaced
	defer s.file.RUnlock()
	size, err := r.find(members)
	if err != nil {
		return err
	}
	if cap(r.buf) < size {
		r.buf = make([]byte, size)
	}
	r.buf = r.buf[:size]
	for first := 0; first < len(r.pending); {
		from := r.pending[first]
		end, next := from.at+int64(from.size), first+1
		for ; next < len(r.pending) && r.pending[next].at == end; next++ {
			end += int64(r.pending[next].size)
		}
		if err := s.log.read(r.buf[from.start:][:end-from.at], from.at); err != nil {
			return err
		}
		first = next
	}
	return nil
}

// find finds where the first objects of members are in the log, and returns the size of their records.
func (r *Reader) find(members []Member) (size int, err error) {
	s := r.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.contents == nil {
		return 0, ErrClosed
	}
	for _, m := range members {
		if size > 0 && size+m.Size > readChunk {
			break
		}
		o := s.contents.object(r.scope, m.Name, m.ResourceVersion, m.Sum)
		if o == nil {
			return size, ofView(r.id, m.Name, ErrChanged)
		}
		r.pending = append(r.pending, pendingRecord{o.place, size})
		size += int(o.place.size)
	}
	return size, nil
}

// damaged records that an object cannot be read from a place: when it is given again, it is written
// again. It reports whether that is new.
func (s *Store) damaged(key ObjectKey, at place) bool { return s.mark(key, at, false) }

// mark records whether the record of an object at a place is whole. It reports whether that is new.
func (s *Store) mark(key ObjectKey, at place, whole bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contents == nil {
		return false
	}
	o := s.contents.object(key.Scope, key.Name, key.ResourceVersion, key.Sum)
	if o == nil || o.place != at || s.contents.isKnown(o) && o.whole == whole {
		return false
	}
	s.contents.mark(o, whole)
	return true
}

// Holds reports whether an object is stored, and is known to be whole: this process has written or checked its
// record. It does no I/O.
func (s *Store) Holds(key ObjectKey) (holds bool) {
	_ = s.reading(func(c *contents) error {
		o := c.object(key.Scope, key.Name, key.ResourceVersion, key.Sum)
		holds = o != nil && o.whole
		return nil
	})
	return holds
}

// check reads the record of an object, if it is stored and nobody knows whether it is whole: another process
// has written it. s.write must be held.
func (s *Store) check(key ObjectKey) {
	o := s.contents.object(key.Scope, key.Name, key.ResourceVersion, key.Sum)
	if o == nil || s.isKnown(o) {
		return
	}
	record := make([]byte, o.place.size)
	err := s.log.read(record, o.place.at)
	if err == nil {
		err = seal.CheckSum(key.at(), record)
	}
	if s.mark(key, o.place, err == nil) && err != nil {
		s.opts.Damaged(&Error{Name: key.Name, Err: err})
	}
}

func (s *Store) isKnown(o *object) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.contents.isKnown(o)
}

// Lend makes the Reader read into a buffer of the caller.
func (r *Reader) Lend(buf []byte) { r.buf = buf[:0] }

// Reclaim returns that buffer, or a larger one that has replaced it. Objects in it are then no
// longer valid.
func (r *Reader) Reclaim() []byte {
	buf := r.buf
	r.buf, r.pending = nil, r.pending[:0]
	return buf
}

// Close releases the objects that were kept for the Reader.
func (r *Reader) Close() { r.close() }
