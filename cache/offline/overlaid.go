package offline

import (
	"slices"
	"strings"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Offline, the node's own status of itself and of its pods is part of what everybody
// reads: package overlay keeps it, and lists and watches lay it over what is cached.
// Versions stay as they are. This file is about where an update belongs; package watch shows
// it to watches that are open.

// ShowsStatus reports whether updates of the overlay are part of a view.
func ShowsStatus(v *view.View) bool {
	return v.Repr.Metadata == "" && overlay.Shows(v.Key.Group, v.Key.Resource)
}

// Placed is what an update means for a view.
type Placed struct {
	update *overlay.Update
	Name   string     // of the member
	Member bool       // of the view as it is cached
	Entry  view.Entry // then
	Bare   []byte     // then: the cached object
	Fits   bool       // the updated object is in what the view selects
}

// StatusUpdates returns the updates of a view's resource.
func (a *Answers) StatusUpdates(v *view.View) []*overlay.Update {
	if !ShowsStatus(v) {
		return nil
	}
	return a.Overlay.Updates(v.Key.Group, v.Key.Version, v.Key.Resource)
}

// Place says what an update means for a view, or no if that is nothing.
func (a *Answers) Place(v *view.View, u *overlay.Update) (Placed, bool) {
	p := Placed{update: u, Name: query.MemberName(u.Key.Namespace, u.Key.Name)}
	own := v.Key.User == query.NodeUser
	if p.Entry, p.Member = v.Member(p.Name); !p.Member {
		if !own || !overlay.SelectsStatus(v.Key.Fields) {
			return p, false
		}
		p.Fits = u.Matches(v.Key.Namespace, v.Key.Labels, v.Key.Fields) && a.isCached(v, u)
		return p, true
	}
	m := wire.Meta{UID: []byte(u.UID), ResourceVersion: []byte(p.Entry.Version)}
	if !u.Over(&m, own) {
		return p, false // another version: the object need not be read
	}
	var err error
	if p.Bare, err = v.Read(p.Name, p.Entry); err != nil {
		a.Log.Error("cached object cannot be read", "err", err)
		return p, false
	}
	if m, err = wire.Inspect(v.Repr.Encoding, p.Bare); err != nil || !u.Over(&m, own) {
		return p, false
	}
	p.Fits = u.MatchesFields(v.Key.Fields)
	return p, true
}

// isCached reports whether a GET by the view's user would show the object that was
// updated: it is not gone, nor refused, and a copy of it is there.
func (a *Answers) isCached(v *view.View, u *overlay.Update) bool {
	q := &query.Query{User: v.Key.User, Verb: "get", Resource: v.Key.GVR(), Namespace: u.Key.Namespace, Name: u.Key.Name}
	copies, err := a.Views.Seek(q)
	return err == nil && slices.ContainsFunc(copies, func(held view.Copy) bool {
		return held.Whole() && versions.Compare(held.Entry.Version, u.ResourceVersion) <= 0
	})
}

// Status is what updates make of a snapshot. Members are by name.
type Status struct {
	Shown map[string]*overlay.Update // laid over members, or in their place
	added map[string]bool            // of those: not members of the view as it is cached
	Left  map[string]*overlay.Update // members that are not what the view selects any more
}

// WithStatus makes the members of a snapshot what they are with the node's own status, which
// it returns.
func (a *Answers) WithStatus(src *Source, snap *view.Snapshot) Status {
	updates := a.StatusUpdates(src.View)
	if len(updates) == 0 || src.Repr.Metadata != "" {
		return Status{}
	}
	s := Status{map[string]*overlay.Update{}, map[string]bool{}, map[string]*overlay.Update{}}
	for _, u := range updates {
		p, ok := a.Place(src.View, u)
		switch {
		case !ok:
		case !p.Fits:
			s.Left[p.Name] = u
		default:
			s.Shown[p.Name] = u
			if !p.Member {
				s.added[p.Name] = true
			}
		}
	}
	if len(s.Left) == 0 && len(s.added) == 0 {
		return s
	}
	members := make([]store.Member, 0, len(snap.Members)+len(s.added))
	for _, m := range snap.Members {
		if s.Left[m.Name] == nil && !s.added[m.Name] {
			members = append(members, m)
		}
	}
	for name := range s.added {
		members = append(members, store.Member{Name: name, Size: len(s.Shown[name].Bare)})
	}
	slices.SortFunc(members, func(a, b store.Member) int { return strings.Compare(a.Name, b.Name) })
	snap.Members, snap.Added = members, s.added
	return s
}

// Shown is what the view's user sees of an updated object, in what was asked for. bare is
// the cached object, nil where the view has none.
func (s *Source) Shown(u *overlay.Update, bare []byte) ([]byte, error) {
	o := u.Object
	if bare != nil {
		var err error
		if o, err = u.Lay(overlay.Object{Type: u.Type, Encoding: s.View.Repr.Encoding, Bare: bare}, s.View.Key.User == query.NodeUser); err != nil {
			return nil, err
		}
	}
	return convert.Bare(o.Encoding, s.Repr.Encoding, o.Type, o.Bare)
}

// OverlayKey is what the overlay has of the object that a request names.
func OverlayKey(i *apirequest.RequestInfo) overlay.Key {
	k := overlay.Key{Group: i.APIGroup, Version: i.APIVersion, Resource: i.Resource, Namespace: i.Namespace, Name: i.Name}
	if i.Resource == "namespaces" {
		k.Namespace = ""
	}
	return k
}

// overlaid is an object with what the node has made of it: of its own reads everything,
// of others' the status.
func (r *Request) overlaid(o view.Object) view.Object {
	key, own := OverlayKey(r.Info), r.Node
	u := r.Answers.Overlay.Find(key)
	if u == nil || o.Repr.Metadata != "" || !own && !overlay.Shows(key.Group, key.Resource) {
		return o
	}
	laid, err := u.Lay(overlay.Object{Type: o.Type, Encoding: o.Repr.Encoding, Bare: o.Bare}, own)
	if err != nil {
		r.Answers.Log.Error("status of the node cannot be laid over what is cached", "resource", key.Resource, "name", key.Name, "err", err)
		return o
	}
	return OverlaidObject(laid)
}

// OverlaidObject is an object of the overlay.
func OverlaidObject(o overlay.Object) view.Object {
	return view.Object{Type: o.Type, Repr: negotiation.Representation{Encoding: o.Encoding}, Bare: o.Bare}
}
