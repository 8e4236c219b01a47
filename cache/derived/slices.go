package derived

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// managedBy is the value of LabelManagedBy of slices that the cloud computes from pods. Others
// may have addresses that are not those of the pods' status.
const managedBy = "endpointslice-controller.k8s.io"

// isAPIServer reports whether a member is the slice that the apiservers write for themselves: one for
// each family has this name.
func isAPIServer(member string) bool { return member == "default/kubernetes" }

// copyKey names a slice at a version. Its copies in several views may differ; what is shown is
// always computed from the copy itself.
type copyKey struct{ member, version string }

// sliceCopy is what is known of a slice at a version.
type sliceCopy struct {
	checked uint64   // when it was computed: the number of the basis
	other   bool     // it does not depend on this node
	digest  [32]byte // of the endpoints
	update  *Update  // nil: the slice is as it was read
	last    *Update  // the last one that was not nil
}

// sliceUpdates returns updates for the members of a view that differ from what was read.
func (o *Objects) sliceUpdates(v *view.View) (updates []*Update) {
	if _, ok := o.basis(""); !ok {
		return nil
	}
	for _, k := range copiesOf(v) {
		b, u, known := o.known(k)
		if !known {
			if copied, ok := o.readMember(v, k); ok {
				u = o.compute(b, k, copied)
			}
		}
		if u != nil {
			updates = append(updates, u)
		}
	}
	return updates
}

func copiesOf(v *view.View) (all []copyKey) {
	_, members := v.Members()
	if !v.Usable() {
		return nil
	}
	for i := range members {
		all = append(all, copyKey{members[i].Name, members[i].Version})
	}
	return all
}

// recentSlices returns the updates that watches have shown last, and of members that the last process
// may have shown otherwise than they were read: which of them, nobody knows.
func (o *Objects) recentSlices(v *view.View, at string) []*Update {
	all, earlier := o.shownSlices(v, at)
	maps.DeleteFunc(all, func(k copyKey, _ *Update) bool {
		rev, ok := v.Member(k.member)
		return !ok || rev.Version != k.version
	})
	if earlier {
		for _, k := range copiesOf(v) {
			copied, ok := o.readMember(v, k)
			if !ok || all[k] != nil {
				continue
			}
			if slice := o.followed(k, copied); slice != nil {
				all[k] = o.updateOf(basis{}, slice, 0)
			}
		}
	}
	return slices.Collect(maps.Values(all))
}

// shownSlices returns the last updates of all slices, if clients may still have them. earlier means that a
// client of the view at this version may have read it from the last process.
func (o *Objects) shownSlices(v *view.View, at string) (all map[copyKey]*Update, earlier bool) {
	o.lockCurrent()
	defer o.mu.Unlock()
	s := &o.slices
	recent := s.away || time.Since(s.returnedAt) <= recentFor
	if !recent && time.Since(s.loadedAt) > recentFor {
		s.loaded = nil
	}
	version, earlier := s.loaded[v]
	all = map[copyKey]*Update{}
	if recent {
		for k, c := range s.copies {
			if c.last != nil {
				all[k] = c.last
			}
		}
	}
	return all, earlier && versions.Compare(at, version) <= 0
}

// slice returns the update for one slice, or nil if the slice is as it was read.
func (o *Objects) slice(copied view.Object) *Update {
	m, err := wire.Inspect(copied.Repr.Encoding, copied.Bare)
	if err != nil {
		return nil
	}
	k := copyKey{query.MemberName(string(m.Namespace), string(m.Name)), string(m.ResourceVersion)}
	b, ok := o.basis(k.member)
	if !ok {
		return nil
	}
	return o.compute(b, k, copied)
}

func (o *Objects) basis(member string) (basis, bool) {
	o.lockCurrent()
	defer o.mu.Unlock()
	return o.basisLocked(member)
}

// known returns the update for a slice, if it is known that it is current, and otherwise from what it is
// computed.
func (o *Objects) known(k copyKey) (b basis, u *Update, known bool) {
	o.lockCurrent()
	defer o.mu.Unlock()
	b, ok := o.basisLocked(k.member)
	if !ok {
		return b, nil, true
	}
	if c := o.slices.copies[k]; c != nil && (c.other || c.checked >= b.number) {
		return b, c.update, true
	}
	return b, nil, false
}

func (o *Objects) readMember(v *view.View, k copyKey) (view.Object, bool) {
	rev, ok := v.Member(k.member)
	if !ok || rev.Version != k.version {
		return view.Object{}, false
	}
	cached, err := v.Read(k.member, rev)
	if err != nil {
		o.Log.Error("cached object cannot be read", "err", err)
		return view.Object{}, false
	}
	cached.Type = sliceType
	return cached, true
}

// followed decodes a slice that apply may change. It returns nil for others, which are most: it decodes
// only those that name the node.
func (o *Objects) followed(k copyKey, copied view.Object) *discoveryv1.EndpointSlice {
	server := isAPIServer(k.member)
	if !server && !bytes.Contains(copied.Bare, []byte(o.Node)) {
		return nil
	}
	slice, err := decode[*discoveryv1.EndpointSlice](copied)
	if err != nil {
		o.Log.Error("cached object cannot be read", "err", err)
		return nil
	}
	if server || slice.Labels[discoveryv1.LabelManagedBy] == managedBy {
		return slice
	}
	return nil
}

// compute computes the update for a slice.
func (o *Objects) compute(b basis, k copyKey, copied view.Object) *Update {
	slice := o.followed(k, copied)
	if slice == nil {
		return o.keepSlice(b, k, nil, nil)
	}
	laid, changed := o.apply(b, slice)
	if !changed {
		laid = nil
	}
	return o.keepSlice(b, k, slice, laid)
}

// apply returns a slice as it is shown.
func (o *Objects) apply(b basis, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, bool) {
	switch {
	case !isAPIServer(query.MemberName(slice.Namespace, slice.Name)):
		return followPods(slice, o.Node, b.pods)
	case b.away:
		return leadToHub(slice, o.APIServer)
	}
	return slice, false
}

// keepSlice keeps what was computed for a slice: laid is nil if it is as it was read, and slice is nil
// if it does not depend on this node.
func (o *Objects) keepSlice(b basis, k copyKey, slice, laid *discoveryv1.EndpointSlice) *Update {
	var digest [32]byte
	if laid != nil {
		digest = digestOf(laid)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.slices
	c := s.copies[k]
	if c == nil {
		if laid == nil && !b.away {
			return nil // the cloud's, as it is
		}
		c = &sliceCopy{}
		s.copies[k] = c
	}
	if c.checked > b.number {
		return c.update // of a newer basis
	}
	c.other, c.checked = slice == nil, b.number
	switch {
	case laid == nil:
		c.update = nil
	case c.update == nil || c.digest != digest:
		s.revision++
		c.digest, c.update = digest, o.updateOf(b, slice, s.revision)
		c.last = c.update
	}
	return c.update
}

func digestOf(slice *discoveryv1.EndpointSlice) [32]byte {
	only := &discoveryv1.EndpointSlice{Endpoints: slice.Endpoints, Ports: slice.Ports}
	b, err := only.Marshal()
	if err != nil {
		panic(err) // it was decoded
	}
	return sha256.Sum256(b)
}

// updateOf returns the update for copies of a slice on a basis.
func (o *Objects) updateOf(b basis, slice *discoveryv1.EndpointSlice, revision uint64) *Update {
	u := newUpdate(key{slicesResource, slice.Namespace, slice.Name}, string(slice.UID), slice.ResourceVersion)
	u.Revision = revision
	u.compute = func(cached view.Object) (view.Object, error) {
		copied, err := decode[*discoveryv1.EndpointSlice](cached)
		if err != nil {
			return cached, err
		}
		laid, changed := o.apply(b, copied)
		if !changed {
			return cached, nil
		}
		laid.ResourceVersion = versionOf(copied.ResourceVersion, revision)
		return encode(laid, cached)
	}
	return u
}

// distinctVersions is how many versions below that of the cached slice are used.
const distinctVersions = 16

// versionOf returns the version of a slice that differs from the cached one. It is lower, so that
// a client that resumes from it misses nothing, and another one at the next revision.
func versionOf(cached string, revision uint64) string {
	version := cached
	for range revision%distinctVersions + 1 {
		lower := versions.Preceding(version)
		if versions.Compare(lower, "1") < 0 {
			break
		}
		version = lower
	}
	return version
}
