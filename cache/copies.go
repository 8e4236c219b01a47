package cache

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// heldCopy is a copy of an object in a view.
type heldCopy struct {
	view  *view
	name  string
	entry entry
	// proven is the last version at which the view shows that this is the object.
	proven string
}

// whole reports whether a copy is more than the metadata of the object.
func (c heldCopy) whole() bool { return c.view.repr.Metadata == "" }

// object reads the copy.
func (c *heldCopy) object() (object, error) {
	bare, err := c.view.read(c.name, c.entry)
	if err != nil {
		return object{}, err
	}
	t := c.view.itemType()
	if t.Kind == "" {
		return object{}, errNeverRead
	}
	return object{t, c.view.repr, bare}, nil
}

// uid reads the UID of a copy; it is empty where that cannot be read.
func (c *heldCopy) uid() types.UID { return c.view.uidOf(c.name, c.entry) }

// uidOf reads the UID of a member. It takes no lock of the view.
func (v *view) uidOf(name string, e entry) types.UID {
	bare, err := v.stored(name, e)
	if err != nil {
		return ""
	}
	m, err := wire.Inspect(v.repr.Encoding, bare)
	if err != nil {
		return ""
	}
	return types.UID(m.UID)
}

// copies is what the views of a user have of one object.
type copies struct {
	all []heldCopy
	// hidden is the highest version that was seen in views that cannot be read, or may
	// not: bytes that were lost, lists that were refused.
	hidden string
	// newest is the highest version of a copy of the object in them.
	newest string
}

// seen is the highest version at which the object may have been there.
func (c *copies) seen(k records.Known) string {
	version := versions.Higher(versions.Higher(c.hidden, k.Floor), versions.Higher(versions.Higher(k.Seen, k.Proven), k.Doubt))
	for i := range c.all {
		version = versions.Higher(version, c.all[i].entry.version)
	}
	return version
}

// copies looks into all views of a user.
func (s *views) copies(of query.UserResource, name string) copies {
	var c copies
	for _, v := range s.resource(of.User, of.Resource) {
		one, hidden, ok := v.copyOf(name)
		c.hidden = versions.Higher(c.hidden, hidden)
		if ok {
			c.all = append(c.all, one)
		} else {
			c.newest = versions.Higher(c.newest, one.entry.version)
		}
	}
	return c
}

// copyOf returns the view's copy of an object, or the version up to which the view may have
// seen the object and cannot show it, with the entry of the copy if that is known.
func (v *view) copyOf(name string) (c heldCopy, hidden string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost.Load() && !v.key.Single {
		return c, v.version, false
	}
	if v.loadLocked() != nil {
		return c, v.newestLocked(), false
	}
	e, ok := v.index[name]
	switch {
	case !ok:
		return c, "", false
	case v.header.Denied, v.lost.Load():
		return heldCopy{name: name, entry: e}, e.version, false
	}
	c = heldCopy{v, name, e, e.version}
	if v.complete {
		c.proven = v.version
	}
	return c, "", true
}

// holds reports whether a view of a user may hold a copy of an object. No view is read from
// the disk for that.
func (s *views) holds(of query.UserResource, name string) bool {
	return slices.ContainsFunc(s.resource(of.User, of.Resource), func(v *view) bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		if !v.loaded {
			return true
		}
		_, ok := v.index[name]
		return ok
	})
}

// needed reports whether a copy of an object would be served if there were no such record.
func (s *views) needed(of query.UserResource, name string, one *records.Record) bool {
	switch {
	case !s.holds(of, name):
		return false
	case one.Gone != "":
		return true
	}
	c := s.copies(of, name)
	return !slices.ContainsFunc(c.all, func(c heldCopy) bool { return versions.Compare(c.proven, one.Doubt) > 0 })
}

func newestOf(copies []heldCopy) string {
	version := ""
	for i := range copies {
		version = versions.Higher(version, copies[i].entry.version)
	}
	return version
}

// absentAt is the highest version at which a view proves that an object is not there, or "".
func (s *views) absentAt(q *query.Query) string {
	version := ""
	for _, v := range s.resource(q.User, q.Resource) {
		version = versions.Higher(version, v.absentAt(q.Namespace, q.Name))
	}
	return version
}

// retire drops a view. Of what it proves not to be there, as far as other views of the user
// have copies, records stay.
func (s *views) retire(v *view) {
	of, version := v.key.UserResource(), v.position()
	if v.key.Proves() && version != "" {
		for _, other := range s.resource(of.User, of.Resource) {
			for _, name := range other.provenUpTo(version) {
				if namespace, base := query.SplitMember(name); v.lacks(namespace, base, version) {
					s.gone(of, name, version, "", true)
				}
			}
		}
	}
	v.drop()
}

// provenUpTo returns the members that the view shows at a version or before it.
func (v *view) provenUpTo(version string) (names []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost.Load() || !v.key.Single && versions.Compare(v.version, version) > 0 || v.loadLocked() != nil {
		return nil
	}
	for name, e := range v.index {
		if versions.Compare(e.version, version) <= 0 {
			names = append(names, name)
		}
	}
	return names
}

// isGone reports whether this is a copy of an object of which it is known that it is gone.
func (c *heldCopy) isGone(k *records.Known) bool {
	if k.Gone == "" {
		return false
	}
	return versions.Compare(c.entry.version, k.Gone) <= 0 || k.UID != "" && c.uid() == k.UID
}

// object is an object with what has to be known to send it.
type object struct {
	kind wire.TypeMeta
	repr wire.Representation
	bare []byte
}
