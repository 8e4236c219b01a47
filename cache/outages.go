package cache

import (
	"sync"
	"time"
)

// past counts outages.
type past struct {
	mu      sync.Mutex
	outages int
	since   time.Time                // the last began
	checks  map[string]*versionCheck // of the last outage, by versionSpace
}

func (p *past) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outages++
	p.since = time.Now()
	clear(p.checks)
}

func (p *past) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outages
}

// away says since when the cloud cannot be reached, as far as this process knows.
func (p *past) away() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() { // the loss is about to be noted
		return "cannot be reached"
	}
	return "cannot be reached since " + p.since.UTC().Format(time.RFC3339)
}

func (p *past) forget(space string, check *versionCheck) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.checks[space] == check {
		delete(p.checks, space)
	}
}
