package view

import (
	"errors"
	"slices"
	"strings"

	wal "github.com/edgehub-io/edgehub/cache/log"
)

// LogState is what the log writes down of Views, and reads into them: the [wal.State] of their log, which says what its methods mean.
type LogState struct {
	views   *Views
	loading *loaded // what the file has, until Opened
}

// NewLogState returns the LogState of Views, with which the caller must open their log, and then call Opened.
func NewLogState(s *Views) *LogState { return &LogState{s, newLoaded()} }

// Tables is for the log.
func (l *LogState) Tables() []string {
	var tables []string
	for _, v := range l.views.All() {
		tables = append(tables, v.table)
	}
	for _, r := range l.views.allResources() {
		tables = append(tables, r.table())
	}
	return tables
}

// Rows is for the log.
func (l *LogState) Rows(table string) []wal.Row {
	s := l.views
	s.mu.RLock()
	v := s.byTable[table]
	s.mu.RUnlock()
	if v != nil {
		v.of.lock()
		defer v.of.unlock()
		return v.rowsLocked()
	}
	r := s.resourceOf(table)
	if r == nil {
		return nil
	}
	r.lock()
	defer r.unlock()
	if r.forgotten || !r.saved {
		return nil
	}
	return r.rowsLocked()
}

// Apply is for the log.
func (l *LogState) Apply(c wal.Change) {
	if strings.HasPrefix(c.Table, resourcePrefix) {
		l.loading.applyObjects(&c)
	} else {
		l.loading.applyView(&c)
	}
}

// Lost is for the log.
func (l *LogState) Lost(cause error) {
	l.loading.lose(cause)
	if !errors.Is(cause, wal.ErrFormat) {
		l.views.Damaged(cause)
	}
}

// IsEmpty is for the log.
func (l *LogState) IsEmpty() bool { return !slices.ContainsFunc(l.views.All(), (*View).Usable) }

// GivenUp is for the log.
func (l *LogState) GivenUp(table string) { l.views.notWritten(table, errFull) }

var errFull = errors.New("too much waits for the disk")

// Damaged is for the log.
func (l *LogState) Damaged(sum wal.Sum, err error) {
	l.views.damaged.add(sum)
	l.views.Damaged(err)
}

// Opened is called when the file was read, and the log can be written. What memory has is newer than what the file has of the
// same view, or object.
//
// If changes were lost, every copy may be of an object that is gone or was refused, and an object that no view has may have been
// seen since. So all objects are unknown until they are read again.
func (l *LogState) Opened() {
	l.views.restore(l.loading)
	l.loading = newLoaded()
}
