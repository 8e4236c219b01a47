package offline

import (
	"slices"
	"strings"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/localendpoints"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// While the cloud is away, the node's own status of itself and of its pods is applied to
// cached objects, whoever reads them, and EndpointSlices follow the pods. Package overlay keeps
// the status, package localendpoints computes the slices. This file decides which updates belong
// to a view; package watch shows them to open watches. The versions of lists stay the same.

// ShowsStatus reports whether updates of the overlay are applied to a view.
func ShowsStatus(v *view.View) bool {
	return v.Repr.Metadata == "" && overlay.Shows(v.Key.Group, v.Key.Resource) || ShowsEndpoints(v)
}

// ShowsEndpoints reports whether updates of a view are computed from the node's pods.
func ShowsEndpoints(v *view.View) bool {
	return v.Repr.Metadata == "" && localendpoints.Shows(v.Key.Group, v.Key.Version, v.Key.Resource)
}

// Placed is the effect of an update on a view.
type Placed struct {
	Name    string // of the member
	Member  bool   // the cached view has the object
	Version string // of a member
	Bare    []byte // of a member: the cached object
	Fits    bool   // the view selects the updated object
}

// StatusUpdates returns the updates of the view's resource.
func (a *Answers) StatusUpdates(v *view.View) []*overlay.Update {
	switch {
	case ShowsEndpoints(v):
		return a.Endpoints.Updates(v)
	case !ShowsStatus(v):
		return nil
	}
	return a.Overlay.Updates(v.Key.Group, v.Key.Version, v.Key.Resource)
}

// Place returns the effect of an update on a source as it is now, and false if there is none.
func (a *Answers) Place(src *Source, u *overlay.Update) (Placed, bool) {
	p := Placed{Name: query.MemberName(u.Key.Namespace, u.Key.Name)}
	e, ok := src.Member(p.Name)
	p.Member, p.Version = ok, e.Version
	return a.place(src, u, p, func() ([]byte, error) { return src.View.Read(p.Name, e) })
}

// placeIn returns the effect of an update on a snapshot of a source, which may have moved on since.
func (a *Answers) placeIn(snap *view.Snapshot, src *Source, u *overlay.Update) (Placed, bool) {
	p := Placed{Name: query.MemberName(u.Key.Namespace, u.Key.Name)}
	m, ok := view.FindMember(snap.Members, p.Name)
	p.Member, p.Version = ok, m.ResourceVersion
	return a.place(src, u, p, func() ([]byte, error) { return snap.Read(m) })
}

func (a *Answers) place(src *Source, u *overlay.Update, p Placed, read func() ([]byte, error)) (Placed, bool) {
	key := src.Key()
	own := key.User == query.NodeUser
	if !p.Member {
		if !own || !overlay.SelectsStatus(key.Fields) {
			return p, false
		}
		p.Fits = u.Matches(key.Namespace, key.Labels, key.Fields) && a.isCached(key, u)
		return p, true
	}
	m := wire.Meta{UID: []byte(u.UID), ResourceVersion: []byte(p.Version)}
	if !u.Over(&m, own) {
		return p, false // another version: the object need not be read
	}
	var err error
	if p.Bare, err = read(); err != nil {
		a.Log.Error("cached object cannot be read", "err", err)
		return p, false
	}
	if m, err = wire.Inspect(src.View.Repr.Encoding, p.Bare); err != nil || !u.Over(&m, own) {
		return p, false
	}
	p.Fits = u.MatchesFields(key.Fields)
	return p, true
}

// isCached reports whether a GET by the view's user would return the updated object: there is a
// whole copy, and the object is neither gone nor refused.
func (a *Answers) isCached(of *query.Key, u *overlay.Update) bool {
	q := &query.Query{User: of.User, Verb: "get", Resource: of.GVR(), Namespace: u.Key.Namespace, Name: u.Key.Name}
	copies, err := a.Views.Seek(q)
	return err == nil && slices.ContainsFunc(copies, func(c view.Copy) bool {
		return c.Whole() && versions.Compare(c.Entry.Version, u.ResourceVersion) <= 0
	})
}

// Status is the node's own status in a snapshot, by the names of members.
type Status struct {
	Shown map[string]*overlay.Update // applied to members, or added as members
	Left  map[string]*overlay.Update // of members that the view no longer selects
}

// WithStatus applies the node's own status to the members of a snapshot, and returns it.
func (a *Answers) WithStatus(src *Source, snap *view.Snapshot) Status {
	updates := a.StatusUpdates(src.View)
	if len(updates) == 0 || src.Repr.Metadata != "" {
		return Status{}
	}
	s := Status{map[string]*overlay.Update{}, map[string]*overlay.Update{}}
	added := map[string]bool{}
	for _, u := range updates {
		p, ok := a.placeIn(snap, src, u)
		switch {
		case !ok:
		case !p.Fits:
			s.Left[p.Name] = u
		default:
			s.Shown[p.Name] = u
			if !p.Member {
				added[p.Name] = true
			}
		}
	}
	if len(s.Left) == 0 && len(added) == 0 {
		return s
	}
	members := make([]store.Member, 0, len(snap.Members)+len(added))
	for _, m := range snap.Members {
		if s.Left[m.Name] == nil && !added[m.Name] {
			members = append(members, m)
		}
	}
	for name := range added {
		members = append(members, store.Member{Name: name, Size: len(s.Shown[name].Bare)})
	}
	slices.SortFunc(members, func(a, b store.Member) int { return strings.Compare(a.Name, b.Name) })
	snap.Members, snap.Added = members, added
	return s
}

// Shown returns an updated object as the view's user sees it, in the representation of the
// answer. bare is the cached object, or nil if the view has none.
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

// OverlayKey returns the overlay's key for the object of a request.
func OverlayKey(i *apirequest.RequestInfo) overlay.Key {
	k := overlay.Key{Group: i.APIGroup, Version: i.APIVersion, Resource: i.Resource, Namespace: i.Namespace, Name: i.Name}
	if i.Resource == "namespaces" {
		k.Namespace = ""
	}
	return k
}

// Overlaid applies the overlay to an object: all changes if the node reads it, or else only the
// status, and a Node's annotations. A slice is computed from the node's pods.
func (r *Request) Overlaid(o view.Object) view.Object {
	if o.Repr.Metadata != "" {
		return o
	}
	key, own := OverlayKey(r.Info), r.Node
	cached := CachedObject(o)
	var u *overlay.Update
	switch {
	case localendpoints.Shows(key.Group, key.Version, key.Resource):
		u = r.Answers.Endpoints.Over(cached)
	case own || overlay.Shows(key.Group, key.Resource):
		u = r.Answers.Overlay.Find(key)
	}
	if u == nil {
		return o
	}
	laid, err := u.Lay(cached, own)
	if err != nil {
		r.Answers.Log.Error("status of the node cannot be laid over what is cached", "resource", key.Resource, "name", key.Name, "err", err)
		return o
	}
	return OverlaidObject(laid)
}

// CachedObject returns an object of a view as one of the overlay.
func CachedObject(o view.Object) overlay.Object {
	return overlay.Object{Type: o.Type, Encoding: o.Repr.Encoding, Bare: o.Bare}
}

// OverlaidObject returns an object of the overlay as one of a view.
func OverlaidObject(o overlay.Object) view.Object {
	return view.Object{Type: o.Type, Repr: negotiation.Representation{Encoding: o.Encoding}, Bare: o.Bare}
}
