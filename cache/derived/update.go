package derived

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Update is what makes a derived object of a cached one: what the node has reported, or a function
// of the cached object. It is read-only.
type Update struct {
	Name     string // of the member in views
	Revision uint64 // differs from that of an earlier update of the object

	key          key
	uid, version string      // of the cached object beneath
	object       view.Object // the whole of it, as it was written

	// compute returns what everybody reads instead of the cached object, if nobody has written that.
	// It always returns the same, and is called by any goroutine.
	compute func(cached view.Object) (view.Object, error)
}

func newUpdate(k key, uid, version string) *Update {
	return &Update{Name: query.MemberName(k.Namespace, k.Name), key: k, uid: uid, version: version}
}

// over reports whether u lies over a cached object. For the node's own reads, that may be an
// older version of the updated object, which may be cached in two representations. For other
// users it must be the same version: they see nothing that they have not read.
func (u *Update) over(uid, version string, own bool) bool {
	return u.uid == uid && (u.version == version || own && !patch.Older(u.version, version))
}

// lay returns the cached object as it is updated, or cached itself if u does not lie over it. The
// node reads its report of that version in full, and others the status, and a Node's annotations.
// The result's encoding may differ.
func (u *Update) lay(cached view.Object, own bool) (view.Object, error) {
	m, err := wire.Inspect(cached.Repr.Encoding, cached.Bare)
	if err != nil {
		return cached, fmt.Errorf("read the cached %s %s: %w", u.key.Resource, u.key.Name, err)
	}
	switch version := string(m.ResourceVersion); {
	case !u.over(string(m.UID), version, own):
		return cached, nil
	case u.compute != nil:
		return u.compute(cached)
	case own && (u.version == version || !isListed(u.key.GroupVersionResource)):
		return u.object, nil
	}
	to, err := decode[runtime.Object](cached)
	if err != nil {
		return cached, err
	}
	from, err := decode[runtime.Object](u.object)
	if err != nil {
		return cached, err
	}
	copyStatus(to, from)
	return encode(to, cached)
}

// In returns the updated object as the user of a view sees it.
func (u *Update) In(v *view.View, cached view.Object) (view.Object, error) {
	if cached.Type = u.object.Type; u.compute != nil {
		cached.Type = sliceType
	}
	return u.lay(cached, v.Key.User == query.NodeUser)
}

// lasts reports whether an update may be shown until the cloud has caught up: all but the slice of the apiservers, which is
// void as soon as they can be reached.
func (u *Update) lasts() bool { return u.compute == nil || !isAPIServer(u.Name) }
