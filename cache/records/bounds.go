package records

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// shrink brings a resource back into its bounds. It first drops records that no copy contradicts:
// without them nothing is served that was not served before. If that is not enough, it replaces
// the rest by a state of the whole resource.
func (r *Records) shrink(of query.UserResource) {
	candidates := r.namesOf(of)
	maps.DeleteFunc(candidates, func(name string, one Record) bool {
		return one.Refused || one.Allowed || r.copies.Needed(of, name, &one)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	resource := r.of[of]
	if resource == nil {
		return // Sweep has deleted it
	}
	oldestFirst := func(a, b string) int { return cmp.Compare(candidates[a].since, candidates[b].since) }
	for _, name := range slices.SortedFunc(maps.Keys(candidates), oldestFirst) {
		if len(resource.names) <= maxNames*3/4 && r.users[of.User].names <= maxUserNames*3/4 {
			break
		}
		if one := resource.names[name]; one != nil && *one == candidates[name] {
			r.raiseLocked(of, versions.Higher(one.Seen, one.Proven))
			r.setLocked(of, resource, name, &Record{})
		}
	}
	if r.overLocked(of, resource) {
		r.collapseLocked(of, resource)
	}
}

// namesOf returns a copy of all records of a resource.
func (r *Records) namesOf(of query.UserResource) map[string]Record {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := map[string]Record{}
	if resource := r.of[of]; resource != nil {
		for name, one := range resource.names {
			names[name] = *one
		}
	}
	return names
}

// collapseLocked replaces the records of objects by a state of their resource. Objects that were
// gone at a version are in doubt up to that version, also if a view at just that version has
// them: a 404 counts from the highest version that was seen before, and the deletion came later.
func (r *Records) collapseLocked(of query.UserResource, resource *resourceRecord) {
	doubt, byName := "", resource.ByName
	for name, one := range resource.names {
		doubt = versions.Higher(doubt, versions.Higher(one.Gone, one.Doubt))
		r.raiseLocked(of, versions.Higher(one.Seen, one.Proven))
		byName = byName || one.Refused
		r.setLocked(of, resource, name, &Record{Allowed: one.Allowed, since: one.since})
	}
	if doubt != "" {
		r.doubtAllLocked(of, resource, "", doubt)
	}
	if resource.ByName = byName; r.overLocked(of, resource) {
		for name := range resource.names { // all of them allowed
			r.setLocked(of, resource, name, &Record{})
		}
	}
	r.saveStateLocked(of)
}

// makeRoom deletes the records of a user with too many resources, which it may have made up: of
// those without views, of which nothing can be served.
func (r *Records) makeRoom(of query.UserResource) {
	r.mu.RLock()
	user := r.users[of.User]
	full := r.of[of] == nil && user != nil && user.resources >= maxUserResources
	r.mu.RUnlock()
	if !full {
		return
	}
	learned := r.learned.Load()
	viewed := r.copies.ResourcesByUser()[of.User]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.learned.Load() == learned { // otherwise a record may belong to a view that is newer than viewed
		r.deleteAllLocked(of.User, viewed)
	}
}

// reopen opens closed users whose views are of few enough resources again. What was not recorded
// meanwhile is unknown.
func (r *Records) reopen() {
	learned := r.learned.Load()
	viewed := r.copies.ResourcesByUser()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.learned.Load() != learned {
		return // something may not have been recorded just now
	}
	for name, user := range r.users {
		if user.closed && len(viewed[name]) <= maxUserResources {
			r.reopenLocked(name, viewed[name])
		}
	}
}

func (r *Records) reopenLocked(user string, viewed map[query.UserResource]bool) {
	r.deleteAllLocked(user, viewed)
	r.users[user].closed = false
	for of := range viewed {
		if r.of[of] == nil {
			r.unknownLocked(of)
		}
	}
	r.saveUserLocked(user)
}

// deleteAllLocked deletes the records of a user's resources, except some.
func (r *Records) deleteAllLocked(user string, but map[query.UserResource]bool) {
	for of, resource := range r.of {
		if of.User == user && !but[of] {
			r.deleteLocked(of, resource)
		}
	}
}

// sweepIdle is after how many sweeps without a view the records of a user are deleted: a day.
const sweepIdle = int(24 * time.Hour / SweepEvery)

// Sweep opens users again that have few enough resources now, and deletes users that have had no
// view for long: nothing can be served to them.
func (r *Records) Sweep() {
	r.reopen()
	viewed := r.copies.ResourcesByUser()
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.uncountLocked(viewed)
	for name, user := range r.users {
		if user.idle++; viewed[name] != nil {
			user.idle = 0
		}
		if user.idle <= sweepIdle {
			continue
		}
		r.deleteAllLocked(name, nil)
		user.closed = false
		r.saveUserLocked(name)
		delete(r.users, name)
	}
}

// SweepEvery is the interval at which the cache drops what is no longer needed, and has clients list
// what it has lost.
const SweepEvery = 15 * time.Second
