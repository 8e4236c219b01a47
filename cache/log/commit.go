package log

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// Flush commits what waits, also what may wait longer. If that fails, Run tries again.
func (l *Log) Flush() error {
	err := l.commit()
	if err != nil {
		wake(l.dirty)
	}
	return err
}

// commit writes all that waits, and a checkpoint before it if one is due. If that fails, it waits again.
func (l *Log) commit() error {
	done, err := l.tryCommit()
	if done {
		return err
	}
	return l.rewrite()
}

// tryCommit is commit, unless the file has to be replaced before.
func (l *Log) tryCommit() (done bool, err error) {
	l.write.Lock()
	defer l.write.Unlock()
	f := l.file
	if f == nil {
		return true, l.Trouble()
	}
	if err := l.writable(f); err != nil {
		return true, l.end(time.Now(), err)
	}
	if l.broken {
		return false, nil
	}
	var c *checkpoint
	if l.isDue(f) {
		c = l.collect()
	}
	if !l.take(c) {
		return true, nil
	}
	start := time.Now()
	return true, l.end(start, l.append(f, c))
}

// take makes what waits the current commit, and reports whether there is anything.
func (l *Log) take(c *checkpoint) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next.empty() && c == nil {
		return false
	}
	l.current, l.next = l.next, newQueue()
	l.next.read = l.readers > 0
	if c != nil {
		c.needs(l.current.changes())
	}
	if c != nil && l.file != nil {
		c.garbage = l.file.garbage
		c.onlyLiveLocked(l.file)
	}
	return true
}

// end ends a commit. Changes of one that failed are put before those that wait.
func (l *Log) end(start time.Time, err error) error {
	l.mu.Lock()
	var givenUp []string
	if l.trouble = err; err != nil && l.current != nil {
		failed := l.current
		failed.follow(l.next)
		failed.read = l.next.read
		l.next = failed
		givenUp = l.shrinkLocked()
	}
	l.current = nil
	l.mu.Unlock()
	for _, table := range givenUp {
		l.state.GivenUp(table)
	}
	l.opts.Committed(time.Since(start), err)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// append appends the current commit to the file, after the checkpoint if there is one. The sync is the commit point.
func (l *Log) append(f *file, c *checkpoint) error {
	changes := l.current.changes()
	bodies, err := l.missing(f, l.current.given(changes))
	if err != nil {
		return err
	}
	w := &writer{to: f.os, id: f.id, codec: l.codec, at: f.end}
	s := slot{number: l.number + 1, parts: w.at}
	if c != nil {
		l.name(c, f)
		c.write(w, s.number)
	}
	s.commits = w.at
	placed := w.commit(s.number, bodies, changes)
	if w.flush(); w.err == nil && !f.named { // after a power cut the file before may have its name again
		w.err = l.dir.sync()
		f.named = w.err == nil
	}
	if w.err != nil { // nothing of it is needed, and what is left of it is overwritten
		_ = f.os.Truncate(f.end)
		return diskError(w.err)
	}
	if err := l.sync(f.os); err != nil {
		l.broken = true // nobody knows what of the file is on disk
		return diskError(err)
	}
	l.written.Add(w.at - f.end)
	f.end = w.at
	l.size.Store(f.end)
	l.number = s.number
	l.install(f, placed, changes)
	if c != nil && f.writeSlot(s, l.codec) == nil {
		f.size, f.garbage, f.needed = c.size, f.garbage || c.garbage, c.needed+c.size
	}
	if l.mayHaveGrown(f, changes) {
		wake(l.grown)
	}
	return nil
}

// commit appends a commit, and returns where its bodies are.
func (w *writer) commit(number uint64, bodies []*Body, changes []Change) []placed {
	r := &commitRecord{changes: changes, bodies: make([]sizedSum, len(bodies))}
	for i, b := range bodies {
		r.bodies[i] = sizedSum{b.Sum, uint32(w.codec.Size(len(b.Bytes)))}
	}
	f := frame{kind: frameFront, number: number}
	record := w.seal(f, r.encode())
	w.frame(f, record)
	all := make([]placed, len(bodies))
	for i, b := range bodies {
		all[i] = placed{b.Sum, w.body(b)}
	}
	f.kind = frameTail
	w.frame(f, record)
	return all
}

// install makes a commit that is on disk the state that is read.
func (l *Log) install(f *file, bodies []placed, changes []Change) {
	for i := range changes {
		f.garbage = f.garbage || changes[i].Clear || len(changes[i].Delete) > 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range bodies {
		f.needed += int64(b.size)
		f.index[b.sum] = b.place
	}
}

// missing returns which of bodies are not in the file. What an earlier process has written is compared with what is
// given, and written again if it differs: the file is damaged there.
func (l *Log) missing(f *file, bodies []*Body) ([]*Body, error) {
	missing := bodies[:0]
	for _, b := range bodies {
		whole, err := l.isWhole(f, b)
		if err != nil {
			return nil, err
		}
		if !whole {
			missing = append(missing, b)
		}
	}
	return missing, nil
}

func (l *Log) isWhole(f *file, b *Body) (bool, error) {
	l.mu.RLock()
	p, ok := f.index[b.Sum]
	l.mu.RUnlock()
	if !ok || p.whole {
		return ok, nil
	}
	record := make([]byte, p.size)
	if err := f.read(record, p.at); err != nil {
		return false, err
	}
	stored, err := l.codec.Open(whereBody(b.Sum), record)
	if err == nil && !bytes.Equal(stored, b.Bytes) {
		err = corrupt(errOther)
	}
	if err != nil {
		l.damaged(f, b.Sum, p, err)
		return false, nil // it is written again
	}
	p.whole = true
	l.mu.Lock()
	defer l.mu.Unlock()
	f.index[b.Sum] = p
	return true, nil
}

// writable opens a file for writing that was opened when its file system was read-only. l.write must be held.
func (l *Log) writable(f *file) error {
	if !f.readOnly {
		return nil
	}
	again, err := l.dir.open(false)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	if err := cut(again, f.end); err != nil { // which a start that could not write has left out
		again.Close()
		return err
	}
	f.mu.Lock()
	f.os.Close()
	f.os, f.readOnly = again, false
	f.mu.Unlock()
	l.log.Info("cache can be written again", "folder", l.dir)
	return nil
}

// cut makes a file end where its last commit does: of one that a crash has cut short, nothing must be left behind the next.
func cut(f *os.File, end int64) error {
	info, err := f.Stat()
	if err != nil || info.Size() <= end {
		return err
	}
	return f.Truncate(end)
}
