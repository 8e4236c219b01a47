package view

import (
	"sync"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// This file has what happens where the disk does not take, or give back, what views need.

// notWritten marks a table whose changes could not be written. It takes no resource's lock, which the caller may hold.
func (s *Views) notWritten(table string, err error) {
	s.mu.RLock()
	v := s.byTable[table]
	s.mu.RUnlock()
	if v != nil {
		v.stale.Store(true)
		s.Log.Warn("a part of the cache could not be kept; it is read again from the cloud when there is room", "view", v.String(), "err", err)
		go func() { // the caller may hold the lock
			v.of.lock()
			defer v.of.unlock()
			v.of.raiseLocked(v.version)
		}()
	} else if r := s.resourceOf(table); r != nil {
		s.Log.Warn("a part of the cache could not be kept; it is read again from the cloud when there is room", "objects", r.String(), "err", err)
		go r.lose()
	}
}

// lose drops all copies, which could not be written. Clients have them, so no older ones are served.
func (r *resource) lose() {
	r.lock()
	defer r.unlock()
	if r.forgotten {
		return
	}
	newest := ""
	for name, e := range r.entries {
		newest = versions.Higher(newest, e.version())
		r.dropCopiesLocked(name)
	}
	if newest != "" {
		r.doubtAllLocked("", newest)
	}
	r.changes = nil // all of it is written anew
	r.put(wal.Change{Table: r.table(), Clear: true, Put: r.rowsLocked()}, false)
}

// damagedBodies are bodies that could not be read. It is safe for concurrent use.
type damagedBodies struct {
	disk *wal.Log
	mu   sync.Mutex
	sums map[wal.Sum]bool
}

func (d *damagedBodies) add(sum wal.Sum) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sums == nil {
		d.sums = map[wal.Sum]bool{}
	}
	d.sums[sum] = true
}

// anyOf reports whether a member's bytes are damaged, and were not given again.
func (d *damagedBodies) anyOf(members []Member) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.sums) == 0 {
		return false
	}
	for i := range members {
		rev := &members[i]
		if d.hasLocked(rev.sum) || rev.other != nil && d.hasLocked(rev.other.sum) {
			return true
		}
	}
	return false
}

func (d *damagedBodies) has(sum wal.Sum) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hasLocked(sum)
}

func (d *damagedBodies) hasLocked(sum wal.Sum) bool {
	if d.sums[sum] && d.disk.Holds(sum) {
		delete(d.sums, sum)
	}
	return d.sums[sum]
}

// only forgets all bodies but those of members.
func (d *damagedBodies) only(members map[wal.Sum]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for sum := range d.sums {
		if !members[sum] {
			delete(d.sums, sum)
		}
	}
}

func (d *damagedBodies) isEmpty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sums) == 0
}

// sweepDamaged forgets damage of what no view has any more.
func (s *Views) sweepDamaged() {
	if s.damaged.isEmpty() {
		return
	}
	members := map[wal.Sum]bool{}
	for _, v := range s.All() {
		v.of.lock()
		for i := range v.members {
			rev := &v.members[i]
			members[rev.sum] = true
			if rev.other != nil {
				members[rev.other.sum] = true
			}
		}
		v.of.unlock()
	}
	s.damaged.only(members)
}
