package answer

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// inAcceptOrder returns the entries of an Accept header, in the order in which an apiserver
// chooses from them. All conversions to one entry come before the next entry: a client that
// prefers the metadata of objects, and names plain JSON last, may be unable to read more.
func inAcceptOrder(accept string) []wire.Representation {
	return slices.DeleteFunc(wire.Acceptable(accept), func(r wire.Representation) bool { return !r.Cacheable() })
}

// convertible reports whether convertBare can convert objects of type t.
func convertible(t wire.TypeMeta, from, to wire.Representation) bool {
	return from == to || from.Metadata != to.Metadata || convert.Knows(t)
}

// convertBare converts a bare object of type t between representations.
func convertBare(bare []byte, t wire.TypeMeta, from, to wire.Representation) ([]byte, error) {
	switch {
	case from == to:
		return bare, nil
	case from.Metadata != to.Metadata:
		return convert.Metadata(from.Encoding, to.Encoding, bare)
	}
	return convert.Bare(from.Encoding, to.Encoding, t, bare)
}

// Source is a view that can answer, with a conversion if necessary.
type Source struct {
	View *view.View
	Repr wire.Representation // of the answer
	// filter selects the query's objects if View selects more. Then read is a view of the query itself.
	filter *query.Filter
	read   *view.View
}

// Member returns the entry of a member of the view that the query selects.
func (s *Source) Member(name string) (view.Revision, bool) {
	rev, ok := s.View.Member(name)
	if !ok || s.filter.ByName() {
		return rev, ok && s.filter.Name(name)
	}
	o, err := s.View.Read(name, rev)
	return rev, err == nil && s.filter.Name(name) && s.selects(o.Repr.Encoding, o.Bare)
}

// Selected is the source as package derived sees it.
func (s *Source) Selected() *derived.Selected {
	return &derived.Selected{View: s.View, Member: s.Member}
}

// selects reports whether the query selects an object by its labels.
func (s *Source) selects(e wire.Encoding, bare []byte) bool {
	m, err := wire.Inspect(e, bare)
	return err == nil && s.filter.Labels(&m)
}

// convertible reports whether Object can convert the view's objects.
func (s *Source) convertible() bool {
	if s.Repr.Metadata != s.View.Key.Metadata || convert.Knows(s.View.ItemType()) {
		return true
	}
	snap := s.View.Snapshot(s.Repr.Encoding)
	if snap == nil {
		return false
	}
	defer snap.Close()
	return !snap.Converts()
}

// Object returns an object in the representation of the answer: as it is cached, or, with an update,
// derived.
func (s *Source) Object(u *derived.Update, cached view.Object) ([]byte, error) {
	if u != nil {
		var err error
		if cached, err = u.In(s.View, cached); err != nil {
			return nil, err
		}
	}
	return convertBare(cached.Bare, cached.Type, cached.Repr, s.Repr)
}

// ItemType returns the type of the objects that Object returns.
func (s *Source) ItemType() wire.TypeMeta {
	if s.Repr.Metadata != s.View.Key.Metadata {
		return convert.MetadataType
	}
	return s.View.ItemType()
}

// Meta converts the metadata of the view's list.
func (s *Source) Meta(m wire.ListMeta) wire.ListMeta {
	if s.Repr.Metadata != s.View.Key.Metadata {
		m.TypeMeta = wire.TypeMeta{APIVersion: convert.MetadataType.APIVersion, Kind: convert.MetadataType.Kind + "List"}
		m.Sorted = false
	}
	return m
}

// Read returns the answer to a list or watch: a view, and a snapshot of it that the caller must close.
//
// It tries the media types of the Accept header in their order. For each it picks the view with the highest
// resourceVersion that covers the query: a view of the query itself, in any form that can be converted, or one of
// the same user that selects more, if the query itself was read, too. If the view of just this query and form has the same
// members, it is used instead. The error is view.ErrBehind if that is older than what the client has received.
func (r *Request) Read() (*Source, *view.Snapshot, error) {
	behind, seen := false, ""
	for _, to := range inAcceptOrder(r.Query.Accept) {
		if own := r.Answers.Views.Find(r.Query.Key(to)); own != nil {
			seen = versions.Higher(seen, own.Latest())
		}
		src, snap, err := r.newest(to, seen)
		switch {
		case errors.Is(err, view.ErrBehind):
			behind = true
		case err != nil || snap != nil:
			return src, snap, err
		}
	}
	if behind {
		return nil, nil, view.ErrBehind
	}
	return nil, nil, r.unanswerable()
}

// newest returns the source with the highest version for one media type, and its snapshot: nil if there
// is none. The error is view.ErrBehind if it is older than what was seen.
func (r *Request) newest(to wire.Representation, seen string) (*Source, *view.Snapshot, error) {
	src := r.source(to)
	if src == nil {
		return nil, nil, nil
	}
	snap, err := r.snapshot(src)
	if snap == nil || err != nil {
		return nil, nil, err
	}
	if versions.Compare(snap.Version, seen) < 0 {
		snap.Close()
		return nil, nil, view.ErrBehind
	}
	if src.filter == nil && src.View.Key.Metadata == to.Metadata {
		return src, snap, nil
	}
	own := r.Answers.Views.Acquire(r.Query.Key(to))
	defer own.Release()
	exact := own.Snapshot(to.Encoding)
	switch {
	case exact == nil:
	case versions.Compare(exact.Version, seen) >= 0 && slices.EqualFunc(exact.Members, snap.Members, sameVersion):
		snap.Close()
		return &Source{View: own, Repr: to}, exact, nil
	default:
		exact.Close()
	}
	// From now on the view in this representation must not serve an older state: its list may still
	// be running, or be denied for now.
	own.MarkSeen(snap.Version)
	return src, snap, nil
}

func sameVersion(a, b view.Member) bool {
	return a.Name == b.Name && a.Version == b.Version
}

// source returns the source with the highest version for one media type, or nil: of several at this
// version the one that has the least to convert, and to leave out.
func (r *Request) source(to wire.Representation) *Source {
	var best, read *Source
	key := r.Query.Key(to)
	for _, v := range r.Answers.Views.Of(r.Query.UserResource()) {
		filter, ok := key.Within(&v.Key)
		if !ok || v.Key.Metadata != "" && v.Key.Metadata != to.Metadata || v.Denied() || v.Position() == "" {
			continue
		}
		if v.Key.Encoding != key.Encoding && v.Key.Metadata == to.Metadata {
			continue // of a type that cannot be converted
		}
		s := &Source{View: v, Repr: to, filter: filter}
		if filter == nil && (read == nil || s.compare(read) > 0) {
			read = s
		}
		if v.Usable() && s.convertible() && (best == nil || s.compare(best) > 0) {
			best = s
		}
	}
	if read == nil || best == nil {
		return nil
	}
	best.read = read.View
	return best
}

// compare orders sources by version, and then from the worst to the best.
func (s *Source) compare(other *Source) int {
	rank := func(s *Source) int {
		switch {
		case s.filter != nil:
			return 0
		case s.View.Key.Metadata != s.Repr.Metadata:
			return 1
		}
		return 2
	}
	return cmp.Or(versions.Compare(s.View.Position(), other.View.Position()), cmp.Compare(rank(s), rank(other)))
}

// snapshot returns the members of a source that the query selects; nil if it can answer no more.
func (r *Request) snapshot(s *Source) (*view.Snapshot, error) {
	snap := s.View.Snapshot(s.Repr.Encoding)
	if snap == nil || s.filter == nil {
		return snap, nil
	}
	err := snap.Narrow(s.read.Key, func() ([]view.Member, error) { return r.selected(s, snap) })
	if err != nil {
		snap.Close()
		return nil, err
	}
	return snap, nil
}

// selected returns the members of a snapshot that the query selects. It removes them from the snapshot.
func (r *Request) selected(s *Source, snap *view.Snapshot) (members []view.Member, err error) {
	members, unknown := s.known(snap)
	for snap.Members = unknown; len(snap.Members) > 0 && err == nil; {
		err = r.Answers.production.run(r.HTTP.Context(), r.Query.User, func(*Workspace) error {
			return snap.Next(pieceSize, func(_ string, e wire.Encoding, bare []byte) error {
				if s.selects(e, bare) {
					members = append(members, unknown[0])
				}
				unknown = unknown[1:]
				return nil
			})
		})
	}
	slices.SortFunc(members, func(a, b view.Member) int { return strings.Compare(a.Name, b.Name) })
	return members, err
}

// known returns which members the query selects, and of which only their labels show that: those that
// have changed since the query was read.
func (s *Source) known(snap *view.Snapshot) (members, unknown []view.Member) {
	version, before := s.read.Members()
	if versions.Compare(version, snap.Version) > 0 {
		version = "" // it is later, but cannot answer itself
	}
	for _, m := range snap.Members {
		switch {
		case !s.filter.Name(m.Name):
		case s.filter.ByName():
			members = append(members, m)
		case versions.Compare(m.Version, version) > 0:
			unknown = append(unknown, m)
		default:
			if _, had := view.FindMember(before, m.Name); had {
				members = append(members, m)
			}
		}
	}
	return members, unknown
}

// unanswerable returns why no view can answer a list or watch.
func (r *Request) unanswerable() error {
	err := view.ErrNeverRead
	for _, v := range r.Answers.Views.Forms(r.Query) {
		switch {
		case v.Denied():
			return view.ErrDenied
		case v.Behind() && v.Position() != "":
			err = view.ErrBehind
		case !v.Usable():
		case v.Key.Metadata != "":
			err = derived.ErrOnlyMetadata
		default:
			err = NotAcceptable(r.Query)
		}
	}
	return err
}
