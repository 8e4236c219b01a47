package spool

import (
	"container/list"
	"errors"
	"fmt"
)

// Load reads the events of earlier processes. It is called when the log is open, and again when that has happened
// late: what was added until then stays, and is sent after them. Of those with its name it takes the place.
func (s *Spool) Load() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &loader{Spool: s, before: s.order.Front(), own: map[uint64]bool{}}
	for element := l.before; element != nil; element = element.Next() {
		l.own[element.Value.(*entry).number] = true
	}
	err := s.table.Load(l.load)
	s.metrics.dropped.WithLabelValues(reasonUnreadable).Add(float64(l.unreadable))
	s.metrics.dropped.WithLabelValues(reasonRestart).Add(float64(l.orphans))
	if l.orphans > 0 {
		s.log.Warn("events from before the restart are dropped: they were posted with tokens, which are not kept on disk", "count", l.orphans)
	}
	if n := s.order.Len() - len(l.own); n > 0 {
		s.log.Info("events from before the restart wait for the cloud", "count", n)
	}
	if err != nil {
		return fmt.Errorf("load the spool of events: %w", err)
	}
	return nil
}

// loader reads what is on disk, under the spool's lock.
type loader struct {
	*Spool
	own    map[uint64]bool // numbers of the events that memory has
	before *list.Element   // the first of these

	unreadable, orphans int
}

var (
	errOrphan   = errors.New("its caller's token is not known any more")
	errReplaced = errors.New("it was posted again")
)

// load takes one event, in the order of their numbers, or returns why it is to be deleted.
func (l *loader) load(key string, value []byte) error {
	number, err := parseKey(key)
	if l.own[number] && err == nil {
		return nil
	}
	r, parseErr := parse(value)
	if err := errors.Join(err, parseErr); err != nil {
		l.unreadable++
		return err
	}
	if !r.isNode() {
		l.orphans++
		return errOrphan
	}
	if known := l.byName[r.name()]; known != nil {
		older := known.Value.(*entry)
		if l.own[older.number] {
			return errReplaced
		}
		l.removeLocked(older)
	}
	l.pushLocked(&entry{number: number, name: r.name(), size: int64(len(value))}, l.before)
	return nil
}
