package view

import (
	"cmp"
	"maps"
	"slices"

	"github.com/edgehub-io/edgehub/cache/versions"
)

// shrinkLocked brings a resource back into its bounds. It first forgets what no copy contradicts:
// without that nothing is served that was not served before. If it is not enough, it replaces
// the rest by bounds of the whole resource.
func (r *resource) shrinkLocked() {
	candidates := map[string]*entry{}
	for name, e := range r.entries {
		if len(e.copies) == 0 && !e.Refused && !e.Allowed && !r.isNeeded(name, &e.state) {
			candidates[name] = e
		}
	}
	oldestFirst := func(a, b string) int { return cmp.Compare(candidates[a].since, candidates[b].since) }
	for _, name := range slices.SortedFunc(maps.Keys(candidates), oldestFirst) {
		if r.names <= maxNames*3/4 && r.user.n.Load() <= maxUserNames*3/4 {
			break
		}
		one := candidates[name]
		r.raiseLocked(versions.Higher(one.Seen, one.Proven))
		r.setLocked(name, &entry{})
	}
	if r.overLocked() {
		r.collapseLocked()
	}
}

// isNeeded reports whether, without this, a copy of the object in a view would be served.
func (r *resource) isNeeded(name string, one *state) bool {
	held, confirmed := false, false
	for _, v := range r.viewsLocked() {
		if v.has(name) {
			held = true
			confirmed = confirmed || v.isShowing() && v.complete && versions.Compare(v.version, one.Doubt) > 0
		}
	}
	return held && (one.Gone != "" || !confirmed)
}

// collapseLocked replaces what is known of objects without copies by bounds of their resource. Objects that were
// gone at a version are in doubt up to that version, also if a view at just that version has
// them: a 404 counts from the highest version that was seen before, and the deletion came later.
func (r *resource) collapseLocked() {
	doubt, byName := "", r.ByName
	for name, e := range r.entries {
		doubt = versions.Higher(doubt, versions.Higher(e.Gone, e.Doubt))
		r.raiseLocked(versions.Higher(e.Seen, e.Proven))
		byName = byName || e.Refused
		r.setLocked(name, &entry{state: state{Allowed: e.Allowed, Own: e.Own}, copies: e.copies, since: e.since, read: e.read, shown: e.shown})
	}
	if doubt != "" {
		r.doubtAllLocked("", doubt)
	}
	if r.ByName = byName; r.overLocked() {
		for name, e := range r.entries { // all of them allowed
			if len(e.copies) == 0 {
				r.setLocked(name, &entry{})
			}
		}
	}
	r.saveBoundsLocked()
}
