package cache

import "maps"

// modelSeen is what one user was shown through the hub.
type modelSeen struct {
	newest  map[string]int // the newest version of each object, by names, and
	uid     map[string]int // its UID
	alive   map[string]int // versions at which they certainly existed,
	absent  map[string]int // and did not
	goneAt  map[string]int // what is not newer than this is gone
	gone    map[int]bool   // UIDs
	doubt   map[string]int
	refused map[string]bool
	must    map[string]map[string]string // by names and URLs: what has been read by itself since
	listed  map[modelQuery]int           // versions of lists and watches
	kept    map[modelQuery]bool          // lists that must be there
	highest int
	// evicted are objects that only a view showed that was evicted, and again what an apiserver that lags has shown of them since: nobody
	// need know that the client had seen more.
	evicted map[string]bool
	again   map[string]int
}

func newModelSeen() modelSeen {
	return modelSeen{
		newest: map[string]int{}, uid: map[string]int{}, alive: map[string]int{}, absent: map[string]int{}, goneAt: map[string]int{}, gone: map[int]bool{},
		doubt: map[string]int{}, refused: map[string]bool{}, must: map[string]map[string]string{}, listed: map[modelQuery]int{}, kept: map[modelQuery]bool{},
		evicted: map[string]bool{}, again: map[string]int{},
	}
}

func (s modelSeen) clone() modelSeen {
	s.newest, s.uid, s.alive, s.absent, s.goneAt = maps.Clone(s.newest), maps.Clone(s.uid), maps.Clone(s.alive), maps.Clone(s.absent), maps.Clone(s.goneAt)
	s.gone, s.doubt, s.refused, s.listed, s.kept = maps.Clone(s.gone), maps.Clone(s.doubt), maps.Clone(s.refused), maps.Clone(s.listed), maps.Clone(s.kept)
	s.evicted, s.again = maps.Clone(s.evicted), maps.Clone(s.again)
	must := map[string]map[string]string{}
	for name, of := range s.must {
		must[name] = maps.Clone(of)
	}
	s.must = must
	return s
}

// show records that an object was shown, in a state of a version.
func (s *modelSeen) show(name string, o modelObject, at int) {
	s.highest = max(s.highest, o.version)
	switch known := max(s.newest[name], s.goneAt[name]); {
	case o.version > known && !s.gone[o.uid]:
		delete(s.evicted, name)
		delete(s.again, name)
	case s.evicted[name]:
		s.again[name] = o.version
	}
	if s.gone[o.uid] { // by an apiserver that lags
		return
	}
	if o.version > s.newest[name] {
		s.newest[name], s.uid[name] = o.version, o.uid
		delete(s.must, name)
	}
	s.alive[name] = max(s.alive[name], at)
	if at >= s.doubt[name] {
		delete(s.doubt, name)
	}
}

// lack records that an object was not there at a version.
func (s *modelSeen) lack(name string, at int) {
	s.highest = max(s.highest, at)
	s.absent[name], s.goneAt[name] = max(s.absent[name], at), max(s.goneAt[name], at)
	if s.newest[name] <= at {
		s.gone[s.uid[name]] = s.newest[name] > 0
		delete(s.must, name)
	}
}

// reach records that a query of all objects was followed up to a version.
func (s *modelSeen) reach(state map[string]modelObject, at int) {
	s.highest = max(s.highest, at)
	for _, name := range modelNames {
		if o, ok := state[name]; ok {
			s.show(name, o, at)
		} else {
			s.lack(name, at)
		}
		if s.doubt[name] <= at {
			delete(s.doubt, name)
		}
	}
}

// doubts records that something happened to objects after all that was shown.
func (s *modelSeen) doubts(names ...string) {
	for _, name := range names {
		s.doubt[name] = s.highest + 1
		delete(s.must, name)
	}
}

// restarted forgets what clients had of lists that the hub may not have any more: these clients are gone, too.
func (s *modelSeen) restarted() {
	maps.DeleteFunc(s.listed, func(q modelQuery, _ int) bool { return !s.kept[q] })
	if len(s.evicted) > 0 {
		s.highest = 0 // nothing that is left need have it
	}
}
