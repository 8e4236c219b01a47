package view

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Copy is one user's copy of an object, in one form.
type Copy struct {
	Revision

	Name string
	Type wire.TypeMeta // empty if it is not known
	Repr wire.Representation

	of   *resource
	view *View // nil if it is one of an entry
	// proven is the latest version at which it is known to be current.
	proven string
}

// Whole reports whether the copy is the whole object, not only its metadata.
func (c Copy) Whole() bool { return c.Repr.Metadata == "" }

// Object is an object with its type and representation.
type Object struct {
	Type wire.TypeMeta
	Repr wire.Representation
	Bare []byte
}

// NewReader returns a reader with which the copy can be read until it is closed.
func (c *Copy) NewReader() *wal.Reader { return c.of.all.Disk.NewReader() }

// Object reads the copy.
func (c *Copy) Object() (Object, error) {
	r := c.NewReader()
	defer r.Close()
	return c.ObjectBy(r)
}

// ObjectBy is Object by a reader. The object is valid until the reader's next read.
func (c *Copy) ObjectBy(r *wal.Reader) (Object, error) {
	bare, err := c.of.all.read(r, c.Name, &c.body)
	if err != nil {
		return Object{}, err
	}
	if c.Type.Kind == "" {
		return Object{}, ErrNeverRead
	}
	return Object{c.Type, c.Repr, bare}, nil
}

// Touch records the time of a read.
func (c *Copy) Touch() {
	if c.view != nil {
		c.view.Touch()
		return
	}
	c.of.Touch()
	c.of.lock()
	defer c.of.unlock()
	c.of.noteReadLocked(c.Name)
}

// known is what is known of one object.
type known struct {
	state // also what is known of all objects of its resource
	read  bool
	live  []Copy
	// hidden is the highest version that views have seen that cannot be read (their bytes
	// were lost) or must not be (the apiserver refused the query), newest that of copies in these, and uid the UID of that one.
	hidden, newest string
	uid            types.UID
	// absent is the highest version at which a usable view proves that the object does not exist, or "". lacked is the same of all views,
	// usable or not: their user may have lost access, or clients may have seen a later state.
	absent, lacked string
}

// lookLocked collects what is known of an object.
func (r *resource) lookLocked(namespace, member string) known {
	k := known{}
	if e := r.entries[member]; e != nil {
		k.state = e.state
		for _, c := range e.copies {
			c.proven = c.Version
			k.live = append(k.live, c)
		}
	}
	k.Doubt = versions.Higher(k.Doubt, r.doubtOf(namespace))
	for _, v := range r.viewsLocked() {
		k.look(v, member)
		if at, usable := v.absentAt(namespace, member); at != "" {
			if k.lacked = versions.Higher(k.lacked, at); usable {
				k.absent = versions.Higher(k.absent, at)
			}
		}
	}
	k.read = k.Had || len(k.live) > 0
	return k
}

// look adds what a view shows.
func (k *known) look(v *View, member string) {
	rev, ok := v.get(member)
	switch {
	case v.stale.Load():
		k.hide(v.version, &rev)
	case !ok:
	case v.header.Denied:
		k.hide(rev.Version, &rev)
	default:
		c := Copy{Revision: rev, Name: member, Type: v.header.itemType(), Repr: v.Repr(rev.encoding), of: v.of, view: v, proven: rev.Version}
		if v.complete {
			c.proven = v.version
		}
		c.other = nil
		k.live = append(k.live, c)
		if rev.other != nil {
			c.body, c.Repr = *rev.other, v.Repr(rev.other.encoding)
			k.live = append(k.live, c)
		}
	}
}

// seen returns the highest version at which the object may have existed.
func (k *known) seen(floor string) string {
	version := versions.Higher(versions.Higher(k.hidden, floor), versions.Higher(versions.Higher(k.Seen, k.Proven), k.Doubt))
	return versions.Higher(version, newestOf(k.live))
}

// hide adds a copy that must not be read, or none.
func (k *known) hide(version string, rev *Revision) {
	if k.hidden = versions.Higher(k.hidden, version); versions.Compare(rev.Version, k.newest) > 0 {
		k.newest, k.uid = rev.Version, rev.UID
	}
}

// isOnNode reports whether the node's own list of its pods has the object, and no copy is newer. A GET gives the node nothing then that
// the list does not, so that an earlier refusal of a GET does not count. The apiserver refuses a new pod for a moment, since its Node
// authorizer learns of the pod later than the node's watch; the GET that succeeds may be lost when the hub is killed, or not come before
// an outage.
func (k *known) isOnNode() bool {
	newest := newestOf(k.live)
	return slices.ContainsFunc(k.live, func(c Copy) bool {
		v := c.view
		return v != nil && v.Key.User == query.NodeUser && v.Key.OfNode() && c.Whole() && c.Version == newest && v.usableLocked()
	})
}

func newestOf(copies []Copy) string {
	version := ""
	for i := range copies {
		version = versions.Higher(version, copies[i].Version)
	}
	return version
}

// Seek returns the newest copies of an object that a user may read, in any form;
// all have the same version. Otherwise its error is ErrDenied, ErrDoubtful, ErrForgotten, ErrNeverRead, ErrOtherVersion or,
// only if that is proven, NotFound:
//
//   - An object is gone if an apiserver has said so about exactly this object (404 NotFound,
//     the answer to a DELETE), or by a DELETED event of a watch that objects leave only by
//     deletion, or if a complete view that has to have it does not.
//   - If it is unknown whether an object is gone, its copies are in doubt: they are not
//     served, and prove nothing, until a view shows a later state.
//   - An object that was refused to a GET stays refused until a GET of it succeeds, except a pod that the node reads in the
//     list of its pods: see isOnNode.
//   - Absence must be proven at a version as new as everything that was seen. What was seen and not kept
//     remains as a floor: no view below it proves absence.
func (s *Views) Seek(q *query.Query) ([]Copy, error) {
	r := s.find(q.UserResource())
	if r == nil {
		return nil, ErrNeverRead
	}
	defer r.unlock()
	k := r.lookLocked(q.Namespace, q.Member())
	switch {
	case k.isOnNode():
	case k.Refused:
		return nil, ErrDenied
	case r.ByName && !k.Allowed:
		return nil, ErrForgotten
	}
	live := slices.DeleteFunc(slices.Clone(k.live), func(c Copy) bool {
		return k.lacked != "" && versions.Compare(c.proven, k.lacked) <= 0 || c.isGone(&k.state)
	})
	if len(live) == 0 {
		return nil, r.missingLocked(q, &k)
	}
	sure := k.Doubt == "" || k.Proven != "" && versions.Compare(k.Proven, k.Doubt) >= 0
	for i := range live {
		sure = sure || versions.Compare(live[i].proven, k.Doubt) > 0
	}
	if !sure || !slices.ContainsFunc(live, func(c Copy) bool { return versions.Compare(c.proven, k.newest) >= 0 }) {
		return nil, ErrDoubtful // the user may have seen a newer one
	}
	version := newestOf(live)
	live = slices.DeleteFunc(live, func(c Copy) bool { return c.Version != version })
	of := q.Resource.GroupVersion().String()
	same := slices.DeleteFunc(live, func(c Copy) bool { return c.Whole() && c.Type.APIVersion != "" && c.Type.APIVersion != of })
	if len(same) == 0 {
		return nil, ErrOtherVersion
	}
	return same, nil
}

// missingLocked returns why there is no copy. It is NotFound if the proof is as new as everything
// that was seen of the object.
func (r *resource) missingLocked(q *query.Query, k *known) error {
	floor, absent := versions.Higher(versions.Higher(k.hidden, r.Floor), versions.Higher(k.Seen, k.Proven)), k.absent
	if k.Gone != "" && k.read {
		absent = versions.Higher(absent, k.Gone)
	}
	switch {
	case absent != "" && versions.Compare(absent, floor) >= 0:
		return apierrors.NewNotFound(q.Resource.GroupResource(), q.Name)
	case k.read:
		return ErrDoubtful
	}
	return ErrNeverRead
}

// Absent records that an apiserver does not have an object, which it was asked at a moment.
func (s *Views) Absent(q *query.Query, began *Moment) {
	r := s.note(q.UserResource())
	if r == nil {
		return
	}
	defer r.unlock()
	name := q.Member()
	k := r.lookLocked(q.Namespace, name)
	if !q.Consistent() { // the version of the apiserver's state is unknown
		if len(k.live) > 0 || k.newest != "" {
			r.doubtLocked(name, r.highest.Version())
		}
		return
	}
	if k.Gone != "" && versions.Compare(k.seen(r.Floor), k.Gone) <= 0 {
		return // known already
	}
	for i := range k.live {
		if c := &k.live[i]; versions.Compare(c.Version, began.Version()) <= 0 {
			r.goneLocked(name, began.Version(), c.UID, true)
			return
		}
	}
	uid := types.UID("")
	if versions.Compare(k.newest, began.Version()) <= 0 {
		uid = k.uid
	}
	r.goneLocked(name, began.Version(), uid, len(k.live) > 0)
}

func (r *resource) holdsLocked(name string) bool {
	if e := r.entries[name]; e != nil && len(e.copies) > 0 {
		return true
	}
	return slices.ContainsFunc(r.viewsLocked(), func(v *View) bool { return v.has(name) })
}

// ErrDoubtful is returned for an object that may have been deleted.
var ErrDoubtful = errors.New("this may have been deleted since it was read through this hub; it is read again when the cloud can be reached")

// ErrForgotten is returned for an object that may have been deleted, or refused to the user: that was too much to be kept, or was lost
// on disk.
var ErrForgotten = errors.New("what was known of such objects was too much to keep, or was lost on disk; this one is served again after a GET of it while the cloud can be reached")

// ErrNeverRead is returned for an object of which nothing is known. That does not mean that
// it does not exist, nor that nobody has read it: tables are not kept, and neither is what has no version that is a number.
var ErrNeverRead = errors.New("this was never read through this hub, or only in a form that is not kept, as the table that kubectl get prints (while the cloud can be reached, read it once with kubectl get -o yaml)")

// ErrOtherVersion is returned for an object that was read last in another version of its API, to which the hub does not convert it.
var ErrOtherVersion = errors.New("this was read last in another version of its API; it is read again when the cloud can be reached")

// ErrDenied is returned to a user that has lost access.
var ErrDenied = errors.New("the apiserver refused this when it was last asked")
