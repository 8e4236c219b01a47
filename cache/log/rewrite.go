package log

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Rewrite replaces the file by one that has only what is needed, as Run does from time to time, and erases the old one and
// what was set aside: what was deleted before is not on disk any more when Rewrite returns nil, unless Readers are open.
func (l *Log) Rewrite() error {
	if err := l.rewrite(); err != nil {
		return err
	}
	if err := errors.Join(l.sweep(), l.dir.discard(true)); err != nil {
		return fmt.Errorf("rewrite cache: %w", err)
	}
	return nil
}

// rewrite replaces the file. Bodies are copied while commits go on to the old one; then commits wait for the rest, and
// for a checkpoint of what is in memory, which has all that they have changed.
func (l *Log) rewrite() error {
	l.rewriting.Lock()
	defer l.rewriting.Unlock()
	w, err := l.newFile()
	for n := 0; n < 2 && err == nil; n++ { // the second time, what was committed during the first
		if err = w.copy(l.collect().order); err == nil {
			err = l.sync(w.to)
		}
	}
	l.write.Lock()
	defer l.write.Unlock()
	return l.finish(w, err)
}

// rewriter writes a new file.
type rewriter struct {
	writer
	log      *Log
	from     *file // nil if there is none
	file     *file
	reported map[Sum]bool // bodies that are damaged
}

// newFile begins a new file.
func (l *Log) newFile() (*rewriter, error) {
	l.mu.RLock()
	from := l.file
	l.mu.RUnlock()
	if from != nil {
		if err := l.dir.hasSpace(l.measure(from)); err != nil {
			return nil, err
		}
	}
	fd, err := os.OpenFile(l.dir.file(fileNewLog), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	f := &file{name: l.dir.file(fileLog), os: fd, identity: identity{newID(), time.Now()}, index: map[Sum]place{}}
	return &rewriter{
		writer: writer{to: fd, id: f.id, codec: l.codec, at: headerSize},
		log:    l, from: from, file: f, reported: map[Sum]bool{},
	}, nil
}

// measure returns how many bytes of a file are needed.
func (l *Log) measure(f *file) int64 {
	c := l.collect()
	l.name(c, f)
	return c.needed + c.size
}

// copy copies bodies that are not in the new file yet, as they are sealed. Damaged ones are left out.
func (w *rewriter) copy(order []Sum) error {
	for _, sum := range order {
		if _, done := w.file.index[sum]; done || w.from == nil {
			continue
		}
		w.log.mu.RLock()
		p, ok := w.from.find(sum)
		w.log.mu.RUnlock()
		if !ok {
			continue // it waits for a commit, or was lost
		}
		record := make([]byte, p.size)
		if err := w.from.read(record, p.at); err != nil {
			return err
		}
		if err := checkSum(whereBody(sum), record); err != nil {
			w.reported[sum] = true
			w.log.damaged(w.from, sum, p, err)
			continue
		}
		to := w.append(record)
		to.whole = p.whole
		w.file.index[sum] = to
	}
	w.flush()
	return w.err
}

// finish ends a new file, which gets what waits for a commit, too. The renaming is the commit point. w is nil if err is
// not. l.write must be held.
func (l *Log) finish(w *rewriter, err error) error {
	start := time.Now()
	if err == nil {
		err = w.finish()
	}
	if err != nil && w != nil && w.file != l.file {
		err = errors.Join(err, w.to.Close(), l.dir.remove(fileNewLog))
	}
	return l.end(start, diskError(err))
}

func (w *rewriter) finish() error {
	l, f := w.log, w.file
	c := l.collect()
	l.take(c)
	if err := w.copy(c.order); err != nil {
		return err
	}
	changes := l.current.changes()
	bodies, err := l.missing(f, l.current.given(changes))
	if err != nil {
		return err
	}
	w.report(c, bodies)
	c.garbage = false
	l.name(c, f)
	s := slot{number: l.number + 1, parts: w.at}
	c.write(&w.writer, s.number)
	second := slot{number: s.number, parts: w.at}
	c.write(&w.writer, s.number)
	s.commits, second.commits = w.at, w.at
	placed := w.commit(s.number, bodies, changes)
	w.flush()
	if err := errors.Join(w.err, f.writeSlot(s, l.codec), f.writeSlot(second, l.codec)); err != nil {
		return err
	}
	f.slots = [2]slot{s, second}
	if err := l.sync(w.to); err != nil {
		return err
	}
	if err := l.dir.rename(fileNewLog, fileLog); err != nil {
		return err
	}
	f.end, f.size, f.needed = w.at, c.size, c.needed+c.size
	l.adopt(f, s.number)
	l.install(f, placed, changes)
	if err := l.dir.sync(); err != nil {
		return err // nothing counts until the folder can be synced: what was taken is committed again
	}
	f.named = true
	return nil
}

// report reports bodies that a row needs, and that are nowhere.
func (w *rewriter) report(c *checkpoint, given []*Body) {
	for _, b := range given {
		w.reported[b.Sum] = true
	}
	for _, sum := range c.order {
		if _, ok := w.file.index[sum]; !ok && !w.reported[sum] {
			w.log.state.Damaged(sum, errMissing)
		}
	}
}

// adopt makes a new file, which has the name of the log by now, that of the log.
func (l *Log) adopt(f *file, number uint64) {
	l.number, l.broken = number, false
	l.size.Store(f.end)
	l.written.Add(f.end)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.retired = time.Now()
		l.retired = append(l.retired, l.file)
	}
	l.file = f
}

// maxRetired is how long a file that was replaced is kept for Readers: a client that reads 14 kB a second gets the
// largest list that is kept. A slower one must not keep a Secret on disk.
const maxRetired = time.Hour

// sweep overwrites files that were replaced, and have no Readers any more or are too old.
func (l *Log) sweep() error {
	l.write.Lock()
	f := l.file
	if f != nil && !f.named && l.dir.sync() == nil {
		f.named = true
	}
	ready := f != nil && f.named // otherwise an old file may have its name again after a power cut
	l.write.Unlock()
	if !ready {
		return nil
	}
	var done, kept []*file
	l.mu.Lock()
	for _, old := range l.retired {
		if old.readers == 0 || time.Since(old.retired) >= maxRetired {
			done = append(done, old)
		} else {
			kept = append(kept, old)
		}
	}
	l.retired = kept
	l.mu.Unlock()
	return l.overwrite(f, done)
}

// overwrite overwrites files that were replaced by f, if nothing can bring them back.
func (l *Log) overwrite(f *file, old []*file) (err error) {
	for _, o := range old {
		fd := o.take()
		if fd == nil {
			continue
		}
		if !f.named {
			err = errors.Join(err, fd.Close())
			continue
		}
		l.written.Add(o.end)
		err = errors.Join(err, overwrite(fd))
	}
	return err
}
