package view

import (
	"sync/atomic"
	"time"
)

// use is who reads a view, or the copies of a resource, when it was read last, and what it counts against the limits.
type use struct {
	requests atomic.Int32 // that update or read the view now; see Views.Acquire
	used     atomic.Int64 // time of the last read, in Unix nanoseconds
	seenUsed int64        // used at the last sweep
	unused   int          // sweeps since the last read
	// usedBefore is used at the last call of Views.DropUnread, or 0 if the view had holders.
	usedBefore int64
	counted    usage // its part of Views.totals, whose mutex guards it
}

// Touch records the time of a read.
func (u *use) Touch() { u.used.Store(time.Now().UnixNano()) }

// Hold adds a holder to a view that has one already.
func (u *use) Hold() { u.requests.Add(1) }

// Release undoes Views.Acquire or Hold.
func (u *use) Release() { u.requests.Add(-1) }

// Holders returns how many requests update or read the view now.
func (u *use) Holders() int { return int(u.requests.Load()) }

// isUnused is called at each sweep. It reports whether nobody has used this for long. missing means that its client may be stopped
// for now.
func (u *use) isUnused(missing bool) bool {
	switch used := u.used.Load(); {
	case u.Holders() > 0 || used != u.seenUsed:
		u.seenUsed, u.unused = used, 0
	case !missing:
		u.unused++
	}
	return u.unused > unusedFor
}

// unusedFor is after how many sweeps without a read a view is dropped: 30 days, counting only
// time during which the cloud can be reached. Views of deleted pods end this way. It counts sweeps
// because a node's clock may be wrong by years.
const unusedFor = int(30 * 24 * time.Hour / SweepEvery)
