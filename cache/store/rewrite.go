package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

const (
	// rewriteFrom is how much more than twice what is needed a log may have before it is written anew,
	// in bytes.
	rewriteFrom = 8 << 20
	// maxRecord is about how large a record of the commits in a new log becomes, in bytes, unless one
	// view has more.
	maxRecord = 256 << 10
)

// Run writes the log anew from time to time, until ctx ends; see Options.RewriteEvery. It returns
// ErrClosed after Close. What fails for any other reason is logged, and done at the next time. Run
// must have returned before Close, and must not be called twice.
func (s *Store) Run(ctx context.Context) error {
	for next := s.firstRewrite(); ; next = s.opts.RewriteEvery {
		select {
		case <-ctx.Done():
			return nil
		case <-s.grown:
		case <-time.After(next):
		}
		err := s.tidy()
		if errors.Is(err, ErrClosed) {
			return err
		}
		if err != nil {
			s.logger.Warn("cache could not be written anew; what was removed from it may still be on the disk", "folder", s.dir, "err", err)
		}
	}
}

// soonRewrite is how long after the start the log is written anew at the earliest: by then a node has read
// what it needs.
const soonRewrite = 5 * time.Minute

// firstRewrite returns when Run first writes the log anew: however often the hub restarts, what was removed
// does not stay longer. A log from the future, or from long ago, shows that a clock was wrong.
func (s *Store) firstRewrite() time.Duration {
	s.write.Lock()
	defer s.write.Unlock()
	age := max(time.Since(s.log.created), 0)
	return max(s.opts.RewriteEvery-age, min(soonRewrite, s.opts.RewriteEvery))
}

// retryRewrite is how long after a failed attempt a log that grows is written anew again at the earliest. An attempt takes
// what space there is, also from other programs, and keeps commits waiting; with one in ten minutes, for seconds of them.
const retryRewrite = 10 * time.Minute

// tidy writes the log anew if anything has changed.
func (s *Store) tidy() error {
	old, damaged, err := s.tidyLog()
	err = errors.Join(err, s.overwrite(old))
	for _, m := range damaged {
		s.opts.DamagedMember(m.view, m.name)
	}
	return spaceError(err)
}

// damagedMember is a member of a view whose object is damaged.
type damagedMember struct {
	view ID
	name string
}

// tidyLog also returns which members are damaged: all of the log has been read.
func (s *Store) tidyLog() (old []*os.File, damaged []damagedMember, err error) {
	s.write.Lock()
	defer s.write.Unlock()
	switch {
	case s.closed:
		return nil, nil, ErrClosed
	case s.readOnly != nil || !s.changed:
		return nil, nil, nil
	}
	s.mu.Lock()
	s.contents.forgetUnused(s.readers.Load() == 0)
	s.mu.Unlock()
	if old, err = s.rewrite(); err != nil {
		s.retry = time.Now().Add(retryRewrite)
		select {
		case <-s.grown: // of a commit between the one that woke Run and this attempt
		default:
		}
	}
	s.changed = s.changed || len(s.contents.unused) > 0 // these were copied
	_ = s.reading(func(c *contents) error {
		damaged = c.damagedMembers()
		return nil
	})
	return old, damaged, errors.Join(err, s.discardOld())
}

// grow makes Run write the log anew if much of it is not needed. s.write must be held.
func (s *Store) grow() {
	if s.log.end > 2*(s.contents.live+s.contents.listed)+rewriteFrom && time.Now().After(s.retry) {
		s.rewriteSoon()
	}
}

// rewriteSoon makes Run write the log anew. s.write must be held, or the store not be open yet.
func (s *Store) rewriteSoon() {
	s.changed = true
	select {
	case s.grown <- struct{}{}:
	default:
	}
}

// rewrite replaces log and index by new ones, which have only what is needed, and returns the old ones,
// which the caller must overwrite. s.write must be held: commits wait, and readers do not.
func (s *Store) rewrite() (old []*os.File, err error) {
	id, now := newID(), time.Now()
	log, err := s.dir.create(fileNewLog, fileHeader(id, now, s.codec))
	if err != nil {
		return nil, err
	}
	index, err := s.dir.create(fileNewIndex, fileHeader(id, now, s.codec))
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	w := rewriter{
		store:   s,
		to:      &appender{file: log, id: id, at: headerSize, commit: s.lost},
		index:   indexFile{file: index, id: id, end: headerSize},
		objects: make(map[*object]place, len(s.contents.objects)),
		damaged: map[*object]bool{},
		values:  map[string]map[string]value{},
	}
	if err = w.write(); err != nil {
		return nil, errors.Join(err, log.Close(), index.Close(), s.dir.remove(fileNewLog), s.dir.remove(fileNewIndex))
	}
	old = []*os.File{s.log.file, s.index.file}
	if err = s.dir.rename(fileNewLog, fileLog); err != nil {
		return nil, errors.Join(err, log.Close(), index.Close(), s.dir.remove(fileNewLog), s.dir.remove(fileNewIndex))
	}
	if s.index.file == nil { // the index that is replaced has names all the same
		old[1], _ = os.OpenFile(s.dir.file(fileIndex), os.O_RDWR, 0) // nil if there is none
	}
	// From here on the new log is the log: a commit must not go to the old one, which has no name any more.
	w.created, s.synced = now, false
	s.adopt(&w)
	if err = s.dir.rename(fileNewIndex, fileIndex); err != nil {
		s.index.close() // the next start reads the log
	}
	if syncErr := s.dir.sync(); syncErr != nil {
		s.changed = true // nothing is committed until the folder can be synced
		return nil, errors.Join(err, syncErr, closeAll(old))
	}
	s.synced = true
	return old, err
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// adopt makes the new files those of the store.
func (s *Store) adopt(w *rewriter) {
	s.file.Lock()
	defer s.file.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = logFile{file: w.to.file, id: w.to.id, created: w.created, end: w.to.at}
	s.index, s.number, s.changed = w.index, w.to.commit, false
	s.size.Store(s.log.end + s.index.end)
	s.written.Add(s.size.Load())
	for o, p := range w.objects {
		s.contents.move(o, p)
		s.contents.mark(o, !w.damaged[o])
	}
	for table, values := range w.values {
		for key, v := range values {
			s.contents.put(table, key, &v)
		}
	}
}

// rewriter writes new files with the contents of a store.
type rewriter struct {
	store   *Store
	to      *appender
	index   indexFile
	objects map[*object]place // where objects are in the new log
	damaged map[*object]bool  // damage is copied, too
	values  map[string]map[string]value
	created time.Time
	size    int // of the record so far
}

func (w *rewriter) write() error {
	if err := w.copyBodies(); err != nil {
		return err
	}
	r := &commitRecord{}
	for _, id := range w.store.contents.ids() {
		v := w.store.contents.views[id]
		if v.Err != nil {
			continue // it would have to be dropped
		}
		r.views = append(r.views, w.viewRecord(v))
		if w.size += 1<<10 + 128*len(v.members); w.size > maxRecord {
			r = w.next(r)
		}
	}
	for _, table := range slices.Sorted(maps.Keys(w.values)) {
		for _, key := range slices.Sorted(maps.Keys(w.values[table])) {
			v := w.values[table][key]
			r.pairs = append(r.pairs, pairRecord{table, key, &v})
			if w.size += 128; w.size > maxRecord {
				r = w.next(r)
			}
		}
	}
	w.next(r)
	if w.index.file == nil {
		return fmt.Errorf("%w: the index", ErrNoSpace)
	}
	return errors.Join(w.to.err, w.to.file.Sync(), w.index.file.Sync())
}

// next writes a record, and returns an empty one.
func (w *rewriter) next(r *commitRecord) *commitRecord {
	w.to.commit++
	w.size, r.number, r.from = 0, w.to.commit, w.to.at
	w.index.add(r.number, r.seal(w.store.codec, w.to))
	return &commitRecord{}
}

func (w *rewriter) viewRecord(v *view) viewRecord {
	r := viewRecord{header: v.View, cleared: true, put: make([]*object, 0, len(v.members))}
	for _, name := range slices.Sorted(maps.Keys(v.members)) {
		o := v.members[name] // a copy of it would race with a Reader that finds damage
		r.put = append(r.put, &object{name: o.name, version: o.version, sum: o.sum, size: o.size, place: w.objects[o]})
	}
	return r
}

// copyBodies copies what is needed to the new log, as it is sealed: objects in the order in which
// lists read them.
func (w *rewriter) copyBodies() error {
	var objects []*object // who holds write is the only one who changes them
	for _, o := range w.store.contents.objects {
		for ; o != nil; o = o.next {
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(a, b *object) int {
		if order := strings.Compare(a.scope, b.scope); order != 0 {
			return order
		}
		return strings.Compare(a.name, b.name)
	})
	for _, o := range objects {
		p, record, err := w.copy(o.place)
		if err != nil {
			return err
		}
		w.objects[o] = p
		w.damaged[o] = seal.CheckSum(o.at(), record) != nil
	}
	for table, values := range w.store.contents.tables {
		w.values[table] = make(map[string]value, len(values))
		for key, v := range values {
			if v.size > 0 {
				p, _, err := w.copy(v.place)
				if err != nil {
					return err
				}
				v = value{place: p}
			}
			w.values[table][key] = v
		}
	}
	return nil
}

// copy copies a record, and returns where it is then.
func (w *rewriter) copy(from place) (_ place, record []byte, err error) {
	record = make([]byte, from.size)
	if err := w.store.log.read(record, from.at); err != nil {
		return place{}, nil, err
	}
	return w.to.body(record), record, w.to.err
}

// overwrite overwrites files that have no name any more, and closes them.
func (s *Store) overwrite(files []*os.File) (err error) {
	for _, f := range files {
		if f == nil {
			continue
		}
		if info, failed := f.Stat(); failed == nil {
			s.written.Add(info.Size())
		}
		err = errors.Join(err, overwrite(f))
	}
	return err
}

// overwrite overwrites a file that has no name any more with zeros, and closes it: the file system
// frees its blocks, and does not overwrite them.
func overwrite(f *os.File) error {
	info, err := f.Stat()
	zeros := make([]byte, 64<<10)
	for at := int64(0); err == nil && at < info.Size(); at += int64(len(zeros)) {
		_, err = f.WriteAt(zeros[:min(int64(len(zeros)), info.Size()-at)], at)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("overwrite what was removed: %w", err)
	}
	return nil
}

// keepDamaged is how long a damaged file is left for a person to look at, and the files of an earlier
// version for a hub that goes back to that, by the machine's clock.
const keepDamaged = 7 * 24 * time.Hour

// discardOld erases files that are not used, after keepDamaged.
func (s *Store) discardOld() error {
	var failed error
	for _, name := range append([]string{fileDamaged}, bboltFiles...) {
		if info, err := os.Stat(s.dir.file(name)); err == nil && time.Since(info.ModTime()) >= keepDamaged {
			failed = errors.Join(failed, s.dir.erase(name))
		}
	}
	return failed
}
