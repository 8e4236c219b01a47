package view

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Copy is a copy of an object in a view.
type Copy struct {
	View  *View
	Name  string
	Entry Entry
	// proven is the latest version at which the view shows this copy to be current.
	proven string
}

// Whole reports whether the copy is the whole object, not only its metadata.
func (c Copy) Whole() bool { return c.View.Repr.Metadata == "" }

// Object reads the copy.
func (c *Copy) Object() (Object, error) {
	bare, err := c.View.Read(c.Name, c.Entry)
	if err != nil {
		return Object{}, err
	}
	t := c.View.ItemType()
	if t.Kind == "" {
		return Object{}, ErrNeverRead
	}
	return Object{t, c.View.Repr, bare}, nil
}

// UID reads the UID of a copy; it is empty if that fails.
func (c *Copy) UID() types.UID { return c.View.uidOf(c.Name, c.Entry) }

// uidOf reads the UID of a member. It does not take the view's lock.
func (v *View) uidOf(name string, e Entry) types.UID {
	bare, err := v.stored(name, e)
	if err != nil {
		return ""
	}
	m, err := wire.Inspect(v.Repr.Encoding, bare)
	if err != nil {
		return ""
	}
	return types.UID(m.UID)
}

// Copies are the copies of one object in a user's views.
type Copies struct {
	All []Copy
	// hidden is the highest version that views have seen that cannot be read (their bytes
	// were lost) or must not be (the apiserver refused the query).
	hidden string
	// newest is the highest version of a copy in these views.
	newest string
}

// Seen returns the highest version at which the object may have existed.
func (c *Copies) Seen(k records.Known) string {
	version := versions.Higher(versions.Higher(c.hidden, k.Floor), versions.Higher(versions.Higher(k.Seen, k.Proven), k.Doubt))
	for i := range c.All {
		version = versions.Higher(version, c.All[i].Entry.Version)
	}
	return version
}

// Copies returns the copies of an object in all views of a user.
func (s *Views) Copies(of query.UserResource, name string) Copies {
	var c Copies
	for _, v := range s.Of(of) {
		one, hidden, ok := v.copyOf(name)
		c.hidden = versions.Higher(c.hidden, hidden)
		if ok {
			c.All = append(c.All, one)
		} else {
			c.newest = versions.Higher(c.newest, one.Entry.Version)
		}
	}
	return c
}

// copyOf returns the view's copy of an object. If the view cannot show it, hidden is the
// version up to which it may have seen the object, and c has the entry if that is known.
func (v *View) copyOf(name string) (c Copy, hidden string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stale.Load() && !v.Key.Single {
		return c, v.version, false
	}
	if v.loadLocked() != nil {
		return c, v.latestLocked(), false
	}
	e, ok := v.index[name]
	switch {
	case !ok:
		return c, "", false
	case v.header.Denied, v.stale.Load():
		return Copy{Name: name, Entry: e}, e.Version, false
	}
	c = Copy{v, name, e, e.Version}
	if v.complete {
		c.proven = v.version
	}
	return c, "", true
}

// Holds reports whether a view of a user may have a copy of an object. It reads no view from
// disk.
func (s *Views) Holds(of query.UserResource, name string) bool {
	return slices.ContainsFunc(s.Of(of), func(v *View) bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		if !v.loaded {
			return true
		}
		_, ok := v.index[name]
		return ok
	})
}

// Needed reports whether, without the record, a copy of the object would be served.
func (s *Views) Needed(of query.UserResource, name string, one *records.Record) bool {
	switch {
	case !s.Holds(of, name):
		return false
	case one.Gone != "":
		return true
	}
	c := s.Copies(of, name)
	return !slices.ContainsFunc(c.All, func(c Copy) bool { return versions.Compare(c.proven, one.Doubt) > 0 })
}

func newestOf(copies []Copy) string {
	version := ""
	for i := range copies {
		version = versions.Higher(version, copies[i].Entry.Version)
	}
	return version
}

// absentAt returns the highest version at which a usable view proves that an object does not
// exist, or "". seen is the same for all views, usable or not.
func (s *Views) absentAt(q *query.Query) (version, seen string) {
	for _, v := range s.Of(q.UserResource()) {
		absent, usable := v.absentAt(q.Namespace, q.Name)
		if seen = versions.Higher(seen, absent); usable {
			version = versions.Higher(version, absent)
		}
	}
	return version, seen
}

// retire drops a view. If it proves the absence of objects of which other views of the user
// have copies, it records that first.
func (s *Views) retire(v *View) {
	of, version := v.Key.UserResource(), v.Position()
	if v.Key.Proves() && version != "" {
		for _, other := range s.Of(of) {
			for _, name := range other.provenUpTo(version) {
				if namespace, base := query.SplitMember(name); v.ProvesAbsent(namespace, base, version) {
					s.Gone(of, name, version, "", true)
				}
			}
		}
	}
	v.Drop()
}

// provenUpTo returns the members that the view shows at a version or earlier.
func (v *View) provenUpTo(version string) (names []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stale.Load() || !v.Key.Single && versions.Compare(v.version, version) > 0 || v.loadLocked() != nil {
		return nil
	}
	for name, e := range v.index {
		if versions.Compare(e.Version, version) <= 0 {
			names = append(names, name)
		}
	}
	return names
}

// isGone reports whether this is a copy of an object that is known to be deleted.
func (c *Copy) isGone(k *records.Known) bool {
	if k.Gone == "" {
		return false
	}
	return versions.Compare(c.Entry.Version, k.Gone) <= 0 || k.UID != "" && c.UID() == k.UID
}

// Object is an object with its type and representation.
type Object struct {
	Type wire.TypeMeta
	Repr negotiation.Representation
	Bare []byte
}

// Seek returns the newest copies of an object that a user may read, in any representation;
// all have the same version. Otherwise its error is ErrDenied, ErrDoubtful, ErrNeverRead or,
// only if that is proven, NotFound. See package records for the rules.
func (s *Views) Seek(q *query.Query) ([]Copy, error) {
	of, name := q.UserResource(), q.Member()
	copies := s.Copies(of, name)
	k := s.Records.Known(of, q.Namespace, name)
	switch {
	case k.Refused:
		return nil, ErrDenied
	case k.Closed:
		return nil, ErrDoubtful
	}
	absent, wasAbsent := s.absentAt(q)
	live := slices.DeleteFunc(slices.Clone(copies.All), func(c Copy) bool {
		return wasAbsent != "" && versions.Compare(c.proven, wasAbsent) <= 0 || c.isGone(&k)
	})
	if len(live) == 0 {
		return nil, s.missing(q, &copies, &k, absent)
	}
	sure := k.Doubt == "" || k.Proven != "" && versions.Compare(k.Proven, k.Doubt) >= 0
	for i := range live {
		sure = sure || versions.Compare(live[i].proven, k.Doubt) > 0
	}
	if !sure {
		return nil, ErrDoubtful
	}
	seen := versions.Higher(copies.newest, k.Damaged)
	if !slices.ContainsFunc(live, func(c Copy) bool { return versions.Compare(c.proven, seen) >= 0 }) {
		return nil, ErrDoubtful // the user may have seen a newer one
	}
	version := newestOf(live)
	return slices.DeleteFunc(live, func(c Copy) bool { return c.Entry.Version != version }), nil
}

// missing returns why there is no copy. It is NotFound if the proof is as new as everything
// that was seen of the object.
func (s *Views) missing(q *query.Query, c *Copies, k *records.Known, absent string) error {
	floor, had := versions.Higher(versions.Higher(c.hidden, k.Floor), versions.Higher(k.Seen, k.Proven)), k.Had || len(c.All) > 0
	if k.Gone != "" && had {
		absent = versions.Higher(absent, k.Gone)
	}
	switch {
	case absent != "" && versions.Compare(absent, floor) >= 0:
		return apierrors.NewNotFound(q.Resource.GroupResource(), q.Name)
	case had:
		return ErrDoubtful
	}
	return ErrNeverRead
}

// ErrDoubtful is returned for an object that may have been deleted.
var ErrDoubtful = errors.New("this may have been deleted since it was read through this hub; it is read again when the cloud can be reached")

// ErrNeverRead is returned for an object of which nothing is known. That does not mean that
// it does not exist.
var ErrNeverRead = errors.New("this was never read through this hub")

// ErrDenied is returned to a user that has lost access.
var ErrDenied = errors.New("the apiserver refused this when it was last asked")
