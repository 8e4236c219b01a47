package fuzzcache

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// lossBeforeKill is how much of what a client has seen a hub may forget that is killed with
// SIGKILL: what has not been on disk yet. A commit comes four seconds after the one
// before at the latest, and takes a moment on a busy machine. Everything that was seen
// before has to be there after the kill, and after an orderly stop everything.
const lossBeforeKill = 8 * time.Second

// remembered is how long it is known when something was seen: longer than a disk is full before the hub is
// killed, and what was not written before it is on disk.
const remembered = time.Minute

// floor is the latest revision of which something was seen, and when.
type floor struct {
	settled int64 // seen so long ago that no kill takes it away
	recent  []seen
}

type seen struct {
	rev int64
	at  time.Time
	by  string // where in this package it was noted
}

func (f *floor) now() int64 {
	if n := len(f.recent); n > 0 {
		return f.recent[n-1].rev
	}
	return f.settled
}

func (f *floor) raise(rev int64, at time.Time, by string) {
	if rev <= f.now() {
		return
	}
	f.recent = append(f.recent, seen{rev, at, by})
	for len(f.recent) > 1 && at.Sub(f.recent[0].at) > remembered {
		f.settled, f.recent = f.recent[0].rev, f.recent[1:]
	}
}

// forget takes away what was seen after a time.
func (f *floor) forget(from time.Time) {
	for n := len(f.recent); n > 0 && f.recent[n-1].at.After(from); n = len(f.recent) {
		f.recent = f.recent[:n-1]
	}
}

// sight is what one user has seen, by whichever of its clients.
//
// A GET has to show a state that the object had at some revision from the latest floor on
// that covers the object: that of the object itself, or that of a list of everything in
// its namespace, or everywhere. The same holds for 404, which is one state of it.
type sight struct {
	mu      sync.Mutex
	views   map[string]*floor    // by query and kind of form: the version of what was shown
	objects map[string]*floor    // by objectKey
	covers  map[string]*floor    // by resource and namespace, "" is all: lists without selectors
	tables  map[string]*floor    // by objectKey, and like covers: what only tables have shown
	refused map[string]bool      // queries and objects that were last answered with 403
	allowed map[string]time.Time // when such were last answered with 200
	kills   []loss
	read    map[string]time.Time // answers with 200, by what was asked for: the last one
}

func newSight() *sight {
	return &sight{
		views: map[string]*floor{}, objects: map[string]*floor{}, covers: map[string]*floor{}, tables: map[string]*floor{},
		refused: map[string]bool{}, allowed: map[string]time.Time{}, read: map[string]time.Time{},
	}
}

// raise notes that something of revision rev was read, from a hub that was asked, and had
// answered, at some time.
func (s *sight) raise(in map[string]*floor, key string, rev int64, asked, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kill := range s.kills {
		if at.After(kill.from) && !asked.After(kill.at) {
			return // the hub that reported it was killed just then
		}
	}
	f := in[key]
	if f == nil {
		f = &floor{}
		in[key] = f
	}
	_, file, line, _ := runtime.Caller(1)
	f.raise(rev, at, fmt.Sprintf("%s:%d", filepath.Base(file), line))
}

// whence says how it is known that an object was seen, or seen to be gone, of late.
func (s *sight) whence(r *resource, namespace, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	for what, in := range map[string]map[string]*floor{"the object": s.objects, "a list": s.covers, "a table": s.tables} {
		for _, key := range []string{namespace + "/" + name, namespace, ""} {
			if f := in[objectKey(r.name, key)]; f != nil {
				fmt.Fprintf(&out, "\n\t\t%s, %q, was seen at %d", what, key, f.settled)
				for _, one := range f.recent {
					fmt.Fprintf(&out, ", %d (%s, %s)", one.rev, one.at.Format("05.000"), one.by)
				}
			}
		}
	}
	return out.String()
}

func (s *sight) view(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return floorOf(s.views, key)
}

func floorOf(in map[string]*floor, key string) int64 {
	if f := in[key]; f != nil {
		return f.now()
	}
	return 0
}

// object is the floor of one object.
func (s *sight) object(r *resource, namespace, name string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(
		floorOf(s.objects, objectKey(r.name, namespace+"/"+name)),
		floorOf(s.covers, objectKey(r.name, namespace)),
		floorOf(s.covers, objectKey(r.name, "")))
}

// inTables is the floor of one object in tables.
func (s *sight) inTables(r *resource, namespace, name string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(
		floorOf(s.tables, objectKey(r.name, namespace+"/"+name)),
		floorOf(s.tables, objectKey(r.name, namespace)),
		floorOf(s.tables, objectKey(r.name, "")))
}

// killed takes away what a hub that was killed may have lost.
func (s *sight) killed(lost loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills = append(s.kills, lost)
	for _, in := range []map[string]*floor{s.views, s.objects, s.covers, s.tables} {
		for _, f := range in {
			f.forget(lost.from)
		}
	}
	for key, when := range s.read {
		if when.After(lost.from) {
			delete(s.read, key)
		}
	}
	clear(s.refused) // as good as unknown: what was let in or refused last may be lost
}

// forget takes away everything: the hub was killed at a time, and its store was changed.
func (s *sight) forget(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills = append(s.kills, loss{at: at})
	clear(s.views)
	clear(s.objects)
	clear(s.covers)
	clear(s.tables)
	clear(s.refused)
	clear(s.read)
}

// forgotten reports whether everything was taken away within a minute before a time: an apiserver may not have said again whose the
// user's tokens are.
func (s *sight) forgotten(before time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.kills, func(l loss) bool { return l.from.IsZero() && before.Sub(l.at) < time.Minute })
}

// refuse notes an answer with 403. Which of two that were under way together the hub saw
// last is not known.
func (s *sight) refuse(key string, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if asked.After(s.allowed[key]) {
		s.refused[key] = true
	}
}

// allow notes an answer with 200.
func (s *sight) allow(key string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refused, key)
	s.allowed[key] = at
}

func (s *sight) isRefused(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[key]
}

// noteRead notes that a question was answered with 200 by the cloud.
func (s *sight) noteRead(key string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read[key] = at
}

func (s *sight) wasRead(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.read[key].IsZero()
}
