package records

import (
	"maps"
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// shrink brings a resource back into its bounds. First goes what no copy contradicts: nothing
// is served again without it. What is left becomes a state of the whole resource.
func (r *Records) shrink(of query.UserResource) {
	candidates := r.namesOf(of)
	maps.DeleteFunc(candidates, func(name string, one Record) bool {
		return one.Refused || one.Allowed || r.Needed(of, name, &one)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	resource := r.of[of]
	if resource == nil {
		return // sweep was faster
	}
	names := slices.Collect(maps.Keys(candidates))
	slices.SortFunc(names, func(a, b string) int { return int(candidates[a].since) - int(candidates[b].since) })
	for _, name := range names {
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

// collapseLocked makes the records of objects a state of their resource. What was gone at a
// version is in doubt up to and with it, also where a view at that very version shows it: a
// 404 has no version but the highest that was seen before, and the deletion came later.
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
	if resource.ByName = byName; !r.overLocked(of, resource) {
		r.saveStateLocked(of)
		return
	}
	for name := range resource.names { // all of them allowed
		r.setLocked(of, resource, name, &Record{})
	}
	r.saveStateLocked(of)
}

// makeRoom keeps a user from too many resources, which it may have made up: what is known of
// those goes of which there are no views, so that there is nothing to be served.
func (r *Records) makeRoom(of query.UserResource) {
	r.mu.RLock()
	user := r.users[of.User]
	full := r.of[of] == nil && user != nil && user.resources >= maxUserResources
	r.mu.RUnlock()
	if !full {
		return
	}
	learned := r.learned.Load()
	viewed := r.Viewed()[of.User]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.learned.Load() == learned { // else it may be of a view that has come since
		r.deleteAllLocked(of.User, viewed)
	}
}

// reopen looks for users whose views are of no more resources than there may be, after they
// were of too many. What was not noted meanwhile is not known.
func (r *Records) reopen() {
	learned := r.learned.Load()
	viewed := r.Viewed()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.learned.Load() != learned {
		return // something may not have been noted just now
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

// deleteAllLocked forgets what is known of a user's resources, but for some.
func (r *Records) deleteAllLocked(user string, but map[query.UserResource]bool) {
	for of, resource := range r.of {
		if of.User == user && !but[of] {
			r.deleteLocked(of, resource)
		}
	}
}

// sweepIdle is how many sweeps in a row find no view of a user until its records go: a day.
const sweepIdle = int(24 * time.Hour / SweepEvery)

// Sweep opens users again that have few enough resources now, and forgets users of whom no
// view is left for long: there is nothing that could be served to them.
func (r *Records) Sweep() {
	r.reopen()
	viewed := r.Viewed()
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

// SweepEvery is how often it is looked for what nobody needs any more, and what has
// to be read again.
const SweepEvery = 15 * time.Second
