package log

import "fmt"

// Put queues changes, all of them or none, which are one commit, or a part of one. It does no I/O. A later
// change of a row replaces an earlier one that still waits.
//
// The only error is ErrNoBody: then nothing was queued, and the owner must find the bytes, or drop the table.
//
// Neither the changes nor what they point to may be modified afterwards.
func (l *Log) Put(changes ...Change) error { return l.put(l.dirty, changes) }

// PutLater is Put for what may wait until another commit, or five minutes: renewals of leases, bookmarks.
func (l *Log) PutLater(changes ...Change) error { return l.put(l.waits, changes) }

func (l *Log) put(signal chan struct{}, changes []Change) error {
	givenUp, err := l.enqueue(changes)
	for _, table := range givenUp {
		l.state.GivenUp(table)
	}
	wake(signal)
	return err
}

func (l *Log) enqueue(changes []Change) (givenUp []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range changes {
		if err := l.checkLocked(&changes[i]); err != nil {
			return nil, err
		}
	}
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Clear:
			delete(l.givenUp, c.Table)
		case l.givenUp[c.Table]:
			continue
		}
		l.next.add(c)
	}
	return l.shrinkLocked(), nil
}

// shrinkLocked gives up tables that do not fit into the queue.
func (l *Log) shrinkLocked() (tables []string) {
	tables = l.next.shrink(l.opts.MaxPending)
	for _, table := range tables {
		l.givenUp[table] = true
	}
	return tables
}

// checkLocked returns an ErrNoBody for a change that needs a body that is neither given nor held.
func (l *Log) checkLocked(c *Change) error {
	for i := range c.Put {
		for _, b := range c.Put[i].Bodies {
			if b.Bytes == nil && !l.hasLocked(b.Sum) {
				return fmt.Errorf("put a row: %w", ErrNoBody)
			}
		}
	}
	return nil
}

func (l *Log) hasLocked(sum Sum) bool {
	if l.next.body(sum) != nil || l.current.body(sum) != nil {
		return true
	}
	if l.file == nil {
		return false
	}
	_, ok := l.file.index[sum]
	return ok
}

// Has reports whether a row can be put with a body without its bytes. It does no I/O.
func (l *Log) Has(sum Sum) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.hasLocked(sum)
}

// Holds reports whether a body waits for a commit, or is in the file and known to be whole: this process has written it
// there, or compared it with one that was given. Only then a row may be put without its bytes: an object that is read
// again mends what is damaged on disk. It does no I/O.
func (l *Log) Holds(sum Sum) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.next.body(sum) != nil || l.current.body(sum) != nil {
		return true
	}
	return l.file != nil && l.file.index[sum].whole
}
