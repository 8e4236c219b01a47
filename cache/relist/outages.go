package relist

import (
	"sync"
	"time"
)

// Outages counts outages.
type Outages struct {
	mu      sync.Mutex
	outages int
	since   time.Time                // the last began
	checks  map[string]*versionCheck // of the last outage, by query.VersionSpace
}

// Lost notes that the node can reach no apiserver any more.
func (p *Outages) Lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outages++
	p.since = time.Now()
	clear(p.checks)
}

// Count is how many outages there were.
func (p *Outages) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outages
}

// Away says since when the cloud cannot be reached, as far as this process knows.
func (p *Outages) Away() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() { // the loss is about to be noted
		return "cannot be reached"
	}
	return "cannot be reached since " + p.since.UTC().Format(time.RFC3339)
}

func (p *Outages) forget(space string, check *versionCheck) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.checks[space] == check {
		delete(p.checks, space)
	}
}
