package relist

import (
	"sync"
	"time"
)

// Outages counts outages, and keeps the version checks of the last one.
type Outages struct {
	mu      sync.Mutex
	outages int
	since   time.Time                // start of the last
	checks  map[string]*versionCheck // of the last outage, by query.VersionSpace
}

// Lost records that the node can reach no apiserver any more.
func (o *Outages) Lost() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.outages++
	o.since = time.Now()
	clear(o.checks)
}

// Count returns the number of outages.
func (o *Outages) Count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.outages
}

// Away describes since when the cloud cannot be reached, as far as this process knows.
func (o *Outages) Away() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() { // Lost is about to be called
		return "cannot be reached"
	}
	return "cannot be reached since " + o.since.UTC().Format(time.RFC3339)
}

func (o *Outages) forget(space string, check *versionCheck) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.checks[space] == check {
		delete(o.checks, space)
	}
}
