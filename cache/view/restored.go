package view

import (
	"sync/atomic"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// history is 1, and one more each time that a store was restored. All views of it share one.
type history struct {
	atomic.Int64

	uses int // resources that it is of; guarded by Views.mu
}

// restoredTogether are the resources of one store; see query.UserResource.RestoredWith.
type restoredTogether struct{ space, user string }

func togetherWith(of query.UserResource) restoredTogether {
	t := restoredTogether{space: of.VersionSpace()}
	if t.space != "" {
		t.user = of.User
	}
	return t
}

func (s *Views) historyLocked(of query.UserResource) *history {
	key := togetherWith(of.Clone())
	if s.histories[key] == nil {
		s.histories[key] = &history{}
		s.histories[key].Store(1)
	}
	s.histories[key].uses++
	return s.histories[key]
}

// forgetHistoryLocked is called for a resource that is forgotten. What was never restored need not be known.
func (s *Views) forgetHistoryLocked(of query.UserResource) {
	key := togetherWith(of)
	if h := s.histories[key]; h != nil {
		if h.uses--; h.uses == 0 && h.Load() == 1 {
			delete(s.histories, key)
		}
	}
}

// Restored makes the cache follow an etcd that was restored from a backup, and is at a version now. v is a view of it that
// shows this: a consistent answer is older than a state that clients had received when it was requested. That is a list
// which Commit compares with the view, under the view's lock, because watches update the view at the same time
// (TestEventsOfTwoHistoriesAreNotMixed); or the question for the apiservers' version in package watch.
// Everything else may come from an apiserver that lags behind the others. An object that was read by GET and is older than
// its copy replaces this copy and nothing else: see Views.Keep.
//
// After a restore a version may mean another object. So all that may be from before is dropped: views, but for one that a
// list has just replaced, what is known of single objects, and lists whose requests were sent before. Watches end with 410,
// and their clients list. [query.UserResource.RestoredWith] reports of which users and resources.
//
// began is what clients had received of v when the version was asked for. Where this is known already, nothing is done:
// several watches may come to the same conclusion.
func (s *Views) Restored(v *View, began Began, version string) {
	s.restoring.Lock()
	defer s.restoring.Unlock()
	if versions.Compare(began.Shown(), version) > 0 && !began.isBefore(v) {
		v.of.history.Add(1)
		s.restored(v, version, nil)
	}
}

// restored is Restored, for all but a view that was replaced.
func (s *Views) restored(v *View, version string, replaced *View) {
	s.Log.Warn("apiserver's versions have gone back: its store was restored from a backup; the cache follows", "view", v.String(), "version", version)
	back := v.Key.UserResource()
	var cuts []func()
	for _, other := range s.All() {
		if other != replaced && other.Key.UserResource().RestoredWith(back) {
			cuts = append(cuts, other.reset()...)
		}
	}
	s.mu.RLock()
	for resource, h := range s.highest {
		if query.VersionSpace(resource) == back.VersionSpace() {
			h.lower(version)
		}
	}
	s.mu.RUnlock()
	for _, r := range s.allResources() {
		if r.userResource().RestoredWith(back) {
			r.lock()
			r.restoredLocked()
			r.unlock()
		}
	}
	s.asked.forget(true)
	s.StoreRestored(back)
	callAll(cuts)
}

// reset drops a view whose versions are no longer valid.
func (v *View) reset() (cuts []func()) {
	v.of.lock()
	defer v.of.unlock()
	v.dropLocked()
	v.received = received{}
	return v.feeds.end()
}
