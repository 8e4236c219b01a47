package cache

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// errDoubtful is why there is no answer to a GET of what may have been deleted.
var errDoubtful = errors.New("this may have been deleted since it was read through this hub; it is read again when the cloud can be reached")

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
func (c *copies) seen(k known) string {
	version := higher(higher(c.hidden, k.floor), higher(higher(k.Seen, k.Proven), k.doubt))
	for i := range c.all {
		version = higher(version, c.all[i].entry.version)
	}
	return version
}

// copies looks into all views of a user.
func (s *views) copies(of userResource, name string) copies {
	var c copies
	for _, v := range s.resource(of.user, of.resource) {
		one, hidden, ok := v.copyOf(name)
		c.hidden = higher(c.hidden, hidden)
		if ok {
			c.all = append(c.all, one)
		} else {
			c.newest = higher(c.newest, one.entry.version)
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
func (s *views) holds(of userResource, name string) bool {
	return slices.ContainsFunc(s.resource(of.user, of.resource), func(v *view) bool {
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
func (s *views) needed(of userResource, name string, one *record) bool {
	switch {
	case !s.holds(of, name):
		return false
	case one.Gone != "":
		return true
	}
	c := s.copies(of, name)
	return !slices.ContainsFunc(c.all, func(c heldCopy) bool { return compare(c.proven, one.Doubt) > 0 })
}

// seek returns the newest copies of an object that a user may read, in any representation;
// they are of one version. Otherwise it says why there is none: NotFound only if that is
// proven. See records for the rules.
func (x *exchange) seek(q *query) ([]heldCopy, error) {
	of, name := q.of(), q.member()
	copies := x.cache.views.copies(of, name)
	k := x.cache.records.known(of, q.namespace, name)
	switch {
	case k.Refused:
		return nil, errDenied
	case k.closed:
		return nil, errDoubtful
	}
	absent, wasAbsent := x.cache.views.absentAt(q)
	live := slices.DeleteFunc(slices.Clone(copies.all), func(c heldCopy) bool {
		return wasAbsent != "" && compare(c.proven, wasAbsent) <= 0 || k.isOf(&c)
	})
	if len(live) == 0 {
		return nil, x.missing(q, &copies, &k, absent)
	}
	sure := k.doubt == "" || k.Proven != "" && compare(k.Proven, k.doubt) >= 0
	for i := range live {
		sure = sure || compare(live[i].proven, k.doubt) > 0
	}
	if !sure {
		return nil, errDoubtful
	}
	seen := higher(copies.newest, k.damaged)
	if !slices.ContainsFunc(live, func(c heldCopy) bool { return compare(c.proven, seen) >= 0 }) {
		return nil, errDoubtful // the user may have seen a newer one
	}
	version := newestOf(live)
	return slices.DeleteFunc(live, func(c heldCopy) bool { return c.entry.version != version }), nil
}

// missing says why there is no copy: because there is no such object, if what says so is not
// older than anything that was seen.
func (x *exchange) missing(q *query, c *copies, k *known, absent string) error {
	floor, had := higher(higher(c.hidden, k.floor), higher(k.Seen, k.Proven)), k.Had || len(c.all) > 0
	if k.Gone != "" && had {
		absent = higher(absent, k.Gone)
	}
	switch {
	case absent != "" && compare(absent, floor) >= 0:
		return apierrors.NewNotFound(q.resource.GroupResource(), q.name)
	case had:
		return errDoubtful
	}
	return errNeverRead
}

// isOf reports whether a copy is of the object that is gone.
func (k *known) isOf(c *heldCopy) bool {
	if k.Gone == "" {
		return false
	}
	return compare(c.entry.version, k.Gone) <= 0 || k.UID != "" && c.uid() == k.UID
}

func newestOf(copies []heldCopy) string {
	version := ""
	for i := range copies {
		version = higher(version, copies[i].entry.version)
	}
	return version
}

// absentAt is the highest version at which a view proves that an object is not there, or "".
// Up to seen, which is at least as high, a view that may not answer just now has shown that.
func (s *views) absentAt(q *query) (version, seen string) {
	for _, v := range s.resource(q.user, q.resource) {
		absent, usable := v.absentAt(q.namespace, q.name)
		if seen = higher(seen, absent); usable {
			version = higher(version, absent)
		}
	}
	return version, seen
}

// retire drops a view. Of what it proves not to be there, as far as other views of the user
// have copies, records stay.
func (s *views) retire(v *view) {
	of, version := v.key.of(), v.position()
	if v.key.proves() && version != "" {
		for _, other := range s.resource(of.user, of.resource) {
			for _, name := range other.provenUpTo(version) {
				if namespace, base := splitMember(name); v.lacks(namespace, base, version) {
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
	if v.lost.Load() || !v.key.Single && compare(v.version, version) > 0 || v.loadLocked() != nil {
		return nil
	}
	for name, e := range v.index {
		if compare(e.version, version) <= 0 {
			names = append(names, name)
		}
	}
	return names
}
