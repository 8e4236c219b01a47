package derived

import (
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Of is what derived objects are shown of: a view, or the part of a view that another query selects.
type Of struct {
	View   *view.View
	Key    *query.Key // of the query
	Member func(name string) (view.Entry, bool)
}

// updates returns the updates of a view's resource, unordered.
func (o *Objects) updates(v *view.View) []*Update {
	switch {
	case ShowsSlices(v):
		return o.sliceUpdates(v)
	case Shows(v):
		return o.reportsOf(v.Key.GVR(), false)
	}
	return nil
}

// recent returns the updates that a client which has read a view up to the version at may have
// seen, unordered: in a list or watch of an outage that has ended by now, or from the last process.
func (o *Objects) recent(v *view.View, at string) []*Update {
	if ShowsSlices(v) {
		return o.recentSlices(v, at)
	}
	return slices.DeleteFunc(o.reportsOf(v.Key.GVR(), true), func(u *Update) bool {
		e, ok := v.Member(u.Name)
		if !ok {
			return !adds(&v.Key, u) // also one that no GET returns any more
		}
		return versions.Compare(e.Version, u.version) > 0
	})
}

// Holds reports whether watches keep what they have shown of a view: the cloud is away, or has not
// caught up yet.
func (o *Objects) Holds(v *view.View) bool {
	if ShowsSlices(v) {
		return o.isAway() || o.Settling()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.reports) > 0 && !o.settled
}

// placed is the effect of an update on a view.
type placed struct {
	member  bool   // the cached view has the object
	version string // of a member
	bare    []byte // of a member: the cached object
	fits    bool   // the view selects the updated object
}

// place returns the effect of an update as things are now, or on a snapshot, from which they may have
// moved on since. It returns false if there is none.
func (o *Objects) place(of *Of, snap *view.Snapshot, u *Update) (p placed, ok bool) {
	var read func() ([]byte, error)
	if snap != nil {
		m, found := view.FindMember(snap.Members, u.Name)
		p.member, p.version = found, m.ResourceVersion
		read = func() ([]byte, error) { return snap.Read(m) }
	} else {
		e, found := of.Member(u.Name)
		p.member, p.version = found, e.Version
		read = func() ([]byte, error) { return of.View.Read(u.Name, e) }
	}
	own := of.Key.User == query.NodeUser
	if !p.member {
		p.fits = adds(of.Key, u) && o.isCached(of.Key, u)
		return p, selectsOwnStatus(of.Key)
	}
	if !u.over(u.uid, p.version, own) {
		return p, false // another version: the object need not be read
	}
	var err error
	if p.bare, err = read(); err != nil {
		o.Log.Error("cached object cannot be read", "err", err)
		return p, false
	}
	m, err := wire.Inspect(of.View.Repr.Encoding, p.bare)
	p.fits = u.matchesFields(of.Key.Fields)
	return p, err == nil && u.over(string(m.UID), string(m.ResourceVersion), own)
}

// selectsOwnStatus reports whether objects may be shown for their status alone.
func selectsOwnStatus(k *query.Key) bool { return k.User == query.NodeUser && selectsStatus(k.Fields) }

// adds reports whether a query shows an object that it selects only as it is updated.
func adds(k *query.Key, u *Update) bool { return selectsOwnStatus(k) && u.matches(k) }

// isCached reports whether a GET by the query's user would return the updated object: there is a
// whole copy, and the object is neither gone nor refused.
func (o *Objects) isCached(of *query.Key, u *Update) bool {
	copies, err := o.Views.Seek(&query.Query{User: of.User, Verb: "get", Resource: of.GVR(), Namespace: u.key.Namespace, Name: u.key.Name})
	return err == nil && slices.ContainsFunc(copies, func(c view.Copy) bool {
		return c.Whole() && versions.Compare(c.Entry.Version, u.version) <= 0
	})
}

// Status is what is derived in a snapshot, by the names of members: applied to them, or added, or of members that
// the view no longer selects.
type Status map[string]shown

// Shown returns the update of a member, or nil.
func (s Status) Shown(name string) *Update {
	if one := s[name]; one.present {
		return one.update
	}
	return nil
}

// List changes which members a snapshot has, and returns which of them are derived.
func (o *Objects) List(of *Of, snap *view.Snapshot) Status {
	s, added, left := Status{}, map[string]bool{}, false
	for _, u := range o.updates(of.View) {
		if p, ok := o.place(of, snap, u); ok {
			s[u.Name] = shown{u, p.fits}
			left = left || !p.fits
			if p.fits && !p.member {
				added[u.Name] = true
			}
		}
	}
	if !left && len(added) == 0 {
		return s
	}
	members := make([]store.Member, 0, len(snap.Members)+len(added))
	for _, m := range snap.Members {
		if one, derived := s[m.Name]; !derived || one.present && !added[m.Name] {
			members = append(members, m)
		}
	}
	for name := range added {
		members = append(members, store.Member{Name: name, Size: len(s[name].update.object.Bare)})
	}
	slices.SortFunc(members, func(a, b store.Member) int { return strings.Compare(a.Name, b.Name) })
	snap.Members, snap.Added = members, added
	return s
}
