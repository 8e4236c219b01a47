package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// load opens the files and reads what is in them. s.contents must be empty.
func (s *Store) load() error {
	if s.readOnly == nil { // only the owner knows that nobody is writing them
		if err := errors.Join(s.dir.remove(fileNewLog), s.dir.remove(fileNewIndex)); err != nil {
			return err
		}
	}
	log, err := s.dir.open(fileLog, s.readOnly != nil)
	if err != nil {
		return err
	}
	s.log.file = log
	index, err := s.dir.open(fileIndex, s.readOnly != nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.index.file = index
	isNew, err := s.identify()
	if err != nil {
		return err
	}
	if isNew {
		return s.create()
	}
	l := loader{Store: s}
	if err := l.replay(); err != nil {
		return err
	}
	s.contents.forgetUnused(true)
	s.changed = true // perhaps, since the log was written anew
	s.size.Store(s.log.end + s.index.end)
	if l.lost != nil {
		s.lose(l.lost)
		s.logger.Warn("a part of the cache was damaged on disk: some of the last changes are lost, and are read again from the cloud", "folder", s.dir, "err", l.lost)
	}
	if l.damaged { // then damage in one more place would lose something
		s.rewriteSoon()
	}
	if s.readOnly == nil {
		return s.cut()
	}
	return nil
}

// lose records that commits are lost.
func (s *Store) lose(cause error) {
	s.recovery.Cause, s.settled, s.lost = cause, map[string]bool{}, 1
}

// cut makes the log end where the last commit ends: of one that a crash has cut short, nothing must be left
// behind the next.
func (s *Store) cut() error {
	info, err := s.log.file.Stat()
	if err != nil || info.Size() <= s.log.end {
		return err
	}
	return s.log.file.Truncate(s.log.end)
}

// identify reads the headers of the files. A file that is not readable counts as damaged; if none
// is, the store is new.
func (s *Store) identify() (isNew bool, err error) {
	id, created, logErr := s.header(s.log.file)
	if errors.Is(logErr, ErrKey) {
		return false, logErr
	}
	ofIndex, indexCreated, indexErr := s.header(s.index.file)
	if errors.Is(indexErr, ErrKey) {
		return false, indexErr
	}
	switch {
	case logErr == nil:
		s.log.created = created
		if indexErr != nil || ofIndex != id { // the index is damaged, or that of the log before
			err = s.newIndex(id)
		}
	case indexErr == nil:
		id, created = ofIndex, indexCreated
		s.rewriteSoon()
	default:
		s.index.close()
		return true, s.discard(logErr)
	}
	s.log.id, s.log.created, s.index.id = id, created, id
	return false, err
}

// newIndex begins an empty index.
func (s *Store) newIndex(id fileID) error {
	s.index.close()
	s.index = indexFile{}
	if s.readOnly == nil {
		return s.createIndex(id)
	}
	return nil
}

func (s *Store) createIndex(id fileID) error {
	f, err := s.dir.create(fileIndex, fileHeader(id, s.log.created, s.codec))
	if err = spaceError(err); err != nil && !errors.Is(err, ErrNoSpace) {
		return err
	}
	s.index = indexFile{file: f, end: headerSize} // without space there is none
	return nil
}

func (s *Store) header(f *os.File) (fileID, time.Time, error) {
	if f == nil {
		return fileID{}, time.Time{}, corrupt(errMissing)
	}
	b := make([]byte, headerSize)
	n, err := readAt(f, b, 0)
	if err != nil && !isEOF(err) {
		return fileID{}, time.Time{}, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return parseHeader(b[:n], s.codec)
}

// discard moves a log aside of which nothing can be read.
func (s *Store) discard(cause error) error {
	info, err := s.log.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 { // it is new
		if exists(s.dir.file(fileDamaged)) { // a start has ended after it had moved that aside
			s.lose(cause)
		}
		return nil
	}
	if s.readOnly != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, cause)
	}
	if err := errors.Join(s.dir.rename(fileLog, fileDamaged), s.dir.sync()); err != nil {
		return fmt.Errorf("move the damaged file aside: %w", err)
	}
	s.log.file.Close()
	if s.log.file, err = s.dir.open(fileLog, false); err != nil {
		return err
	}
	s.lose(cause)
	attrs := []any{"cause", cause, "moved to", s.dir.file(fileDamaged)}
	if errors.Is(cause, ErrFormat) {
		s.logger.Warn("cache file has the format of another version of the hub and has been moved aside; nothing can be read offline until it has been read again from the cloud", attrs...)
	} else {
		s.logger.Warn("cache file was damaged and has been moved aside; nothing can be read offline until it has been read again from the cloud", attrs...)
	}
	return nil
}

// create makes the files of a new store.
func (s *Store) create() error {
	if s.readOnly != nil {
		return s.readOnly
	}
	if old := s.dir.file(bboltFiles[0]); s.recovery.Cause == nil && exists(old) {
		s.recovery.Cause = ErrFormat
		s.logger.Warn("the cache of an earlier version of the hub is not used, and is erased after a week; nothing can be read offline until it has been read again from the cloud", "file", old)
	}
	old, err := s.rewrite()
	return spaceError(errors.Join(err, s.overwrite(old))) // they are empty
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// loader reads the commits in the files into a Store.
type loader struct {
	*Store
	lost    error // commits were lost
	damaged bool  // the log
}

// replay applies the commits that the index has, and then those that only the log has.
func (l *loader) replay() error {
	l.log.end = headerSize
	if err := l.replayIndex(); err != nil {
		return err
	}
	return l.replayLog()
}

// replayIndex stops at the first damage, and at what a crash has left of the last record: what follows
// is read from the log.
func (l *loader) replayIndex() error {
	if l.index.file == nil {
		return nil
	}
	r, err := l.frames(l.index.file, headerSize)
	if err != nil {
		return err
	}
	for l.index.end = headerSize; ; l.index.end = r.at {
		f, _, skipped, ok, err := r.next()
		if err != nil {
			return err
		}
		if !ok || skipped {
			break
		}
		record, err := l.record(r, f)
		if errors.Is(err, ErrCorrupt) || err == nil && record.number != l.number+1 {
			break
		}
		if err != nil {
			return err
		}
		l.contents.apply(record)
		l.number, l.log.end = record.number, record.at+frameHeader+int64(f.size)
	}
	if l.readOnly == nil && r.size > l.index.end {
		return l.index.file.Truncate(l.index.end)
	}
	return nil
}

// replayLog applies the commits that follow in the log.
func (l *loader) replayLog() error {
	r, err := l.frames(l.log.file, l.log.end)
	if err != nil {
		return err
	}
	if r.size < l.log.end { // it was cut
		l.damaged = true
	}
	// A hub that was killed may not have synced what it has written. The index must not be ahead of that after a power cut.
	if r.size > l.log.end && l.readOnly == nil && l.log.file.Sync() != nil {
		l.index.close()
	}
	for torn := false; ; {
		f, at, skipped, ok, err := r.next()
		if err != nil {
			return err
		}
		torn = torn || skipped
		if !ok {
			return nil // whatever follows is a commit that was cut short
		}
		if f.kind != frameCommit {
			continue
		}
		record, err := l.record(r, f)
		switch {
		case errors.Is(err, ErrCorrupt):
			torn = true
			continue
		case err != nil:
			return err
		case record.at != at || record.number <= l.number:
			return nil // left over from a commit that failed before this hub wrote here again
		}
		if whole, err := l.isWhole(record); err != nil {
			return err
		} else if !whole && r.at >= r.size {
			return nil // a crash came between its writes and the end of its sync
		}
		if record.number != l.number+1 {
			l.lost = corrupt(fmt.Errorf("commits %d to %d of the cache", l.number+1, record.number-1))
		}
		l.damaged, torn = l.damaged || torn, false
		l.contents.apply(record)
		sealed, err := r.peek(at+frameHeader, f.size)
		if err != nil {
			return err
		}
		l.index.add(record.number, sealed)
		l.number, l.log.end = record.number, r.at
	}
}

// isWhole reports whether the bytes of all objects of a commit are in the log: those of the last one
// may not be, after a power cut.
func (l *loader) isWhole(record *commitRecord) (bool, error) {
	isWhole := func(p place, at seal.Place) (bool, error) {
		if p.at < record.from || p.size == 0 {
			return true, nil // stored before
		}
		b := make([]byte, p.size)
		if err := l.log.read(b, p.at); err != nil {
			return false, err
		}
		return seal.CheckSum(at, b) == nil, nil
	}
	for i := range record.views {
		for _, o := range record.views[i].put {
			if ok, err := isWhole(o.place, o.at()); !ok {
				return false, err
			}
		}
	}
	for _, p := range record.pairs {
		if p.value != nil {
			if ok, err := isWhole(p.value.place, atPair(p.table, p.key)); !ok {
				return false, err
			}
		}
	}
	return true, nil
}

// frames returns the frames of a file from a place on.
func (s *Store) frames(f *os.File, at int64) (*frames, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &frames{file: f, id: s.log.id, at: at, size: info.Size()}, nil
}

// record decodes the record of the commit whose frame r has just returned.
func (s *Store) record(r *frames, f frame) (*commitRecord, error) {
	if f.kind != frameCommit || r.at > r.size {
		return nil, corrupt(seal.ErrShort)
	}
	sealed, err := r.peek(r.at-int64(f.size), f.size)
	if err != nil {
		return nil, err
	}
	payload, err := s.codec.Open(seal.At(seal.KindCommit, s.log.id[:], nil), sealed)
	if err != nil {
		return nil, err
	}
	return s.contents.decode(payload)
}
