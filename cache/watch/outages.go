package watch

import (
	"sync"
	"time"
)

// Outages counts the outages, as the node sees them.
type Outages struct {
	mu    sync.Mutex
	count int       // of outages and restores
	since time.Time // start of the last outage
}

// Lost records that the node can reach no apiserver any more.
func (o *Outages) Lost() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++
	o.since = time.Now()
}

// Restored records that an apiserver's store was restored. Watches end after it as they come back after an outage, not
// all at once.
func (o *Outages) Restored() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++
}

// Count returns the number of outages and restores.
func (o *Outages) Count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count
}

// last returns when the last outage began.
func (o *Outages) last() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since
}

// Away describes since when the cloud cannot be reached, as far as this process knows.
func (o *Outages) Away() string {
	since := o.last()
	if since.IsZero() { // Lost is about to be called
		return "cannot be reached"
	}
	return "cannot be reached since " + since.UTC().Format(time.RFC3339)
}
