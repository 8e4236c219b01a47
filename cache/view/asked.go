package view

import (
	"crypto/sha256"
	"sync"
	"time"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/quota"
)

// The client of a view that is lost is asked to list it. If it does not, it is asked again after askAgain. If it does, and
// the view is lost again, it is asked after a pause, which doubles from askSoon to askAgain, until the view has lasted. So
// a view that cannot be kept, for whatever reason, costs few lists.
const (
	askSoon  = time.Minute
	askAgain = 6 * time.Hour
	lasted   = 10 * time.Minute
)

// maxAsked bounds the views whose clients were asked. Each takes about 100 bytes.
const maxAsked = 2 * maxViews

// asked are the views whose clients were asked to list them, until it does not matter any more.
type asked struct {
	mu sync.Mutex
	of map[keyHash]askedOnce
}

type askedOnce struct {
	at    time.Time
	user  string
	pause time.Duration // before it is asked again
	next  time.Duration // the same once the view is listed
}

// Lost reports whether the view has no state that events can update, or one of which a part is damaged.
func (v *View) Lost() bool {
	v.of.lock()
	defer v.of.unlock()
	return !v.hasStateLocked() || v.isDamagedLocked()
}

// Wanted reports whether the client of a view that is lost should be asked to list it, by answering its watch with 410:
// the client lists, as it does with any apiserver, and the view is there again. That is worth nothing if the list was
// too large the last time, or the disk takes nothing.
func (s *Views) Wanted(v *View) bool { return s.wanted(v, &v.Key, false) }

// Ask is Wanted, and records that the client is asked.
func (s *Views) Ask(v *View) bool { return s.wanted(v, &v.Key, true) }

// AskKey is Ask for a view that need not exist.
func (s *Views) AskKey(key *query.Key) bool { return s.wanted(s.Find(*key), key, true) }

func (s *Views) wanted(v *View, of *query.Key, ask bool) bool {
	if v != nil && (v.isTooLarge() || v.stale.Load() && s.Disk.Trouble() != nil) {
		return false
	}
	a, key, now := &s.asked, hashOf(tableOf(of)), time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	before, ok := a.of[key]
	if ok && now.Sub(before.at).Abs() < before.pause {
		return false
	}
	if ask {
		a.addLocked(key, askedOnce{now, of.User, askAgain, min(max(2*before.next, askSoon), askAgain)})
	}
	return true
}

// AskLater records that the clients of a view's watches need not be asked soon, whether they list or not.
func (s *Views) AskLater(v *View) {
	s.asked.mu.Lock()
	defer s.asked.mu.Unlock()
	s.asked.addLocked(hashOf(v.table), askedOnce{time.Now(), v.Key.User, askAgain, askAgain})
}

// listed is called when a view was listed.
func (a *asked) listed(v *View) {
	key := hashOf(v.table)
	a.mu.Lock()
	defer a.mu.Unlock()
	if one, ok := a.of[key]; ok {
		one.pause = one.next
		a.of[key] = one
	}
}

// keeps is called for a view that is not lost.
func (a *asked) keeps(v *View) {
	key := hashOf(v.table)
	a.mu.Lock()
	defer a.mu.Unlock()
	if one, ok := a.of[key]; ok && time.Since(one.at).Abs() >= lasted {
		delete(a.of, key)
	}
}

func (a *asked) addLocked(key keyHash, one askedOnce) {
	if a.of == nil {
		a.of = map[keyHash]askedOnce{}
	}
	if a.of[key] = one; len(a.of) > maxAsked {
		a.shrinkLocked()
	}
}

// shrinkLocked drops what was asked longest ago, of the tenants who ask the most.
func (a *asked) shrinkLocked() {
	items := make([]quota.Item[keyHash], 0, len(a.of))
	for key, one := range a.of {
		items = append(items, quota.Item[keyHash]{Key: key, User: one.user, Last: one.at.UnixNano()})
	}
	for _, item := range quota.Excess(quota.Bounds{Count: maxAsked - maxAsked/evictionSlack}, items) {
		delete(a.of, item.Key)
	}
}

// forget drops what was asked long ago, or everything if all.
func (a *asked) forget(all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, one := range a.of {
		if all || time.Since(one.at).Abs() >= 2*askAgain {
			delete(a.of, key)
		}
	}
}

// DropTooLarge drops the view, because a list of it was too large to be kept. That is known until a list is kept.
func (v *View) DropTooLarge() {
	v.of.lock()
	defer v.of.unlock()
	if v.complete {
		v.of.all.Log.Warn("not kept any more: the list has become too large", "view", v.String(), "max", MaxListBytes)
	}
	v.dropLocked()
	v.header.TooLarge = true
	v.saveLocked(wal.Change{Clear: true}, false)
}

func (v *View) isTooLarge() bool {
	v.of.lock()
	defer v.of.unlock()
	return v.header.TooLarge
}

// keyHash is the hash of a view's key.
type keyHash = [sha256.Size]byte

func hashOf(table string) keyHash { return sha256.Sum256([]byte(table)) }
