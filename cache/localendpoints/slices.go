package localendpoints

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

var sliceType = wire.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"} //nolint:gochecknoglobals // a constant

// managedBy is the value of LabelManagedBy of slices that the cloud computes from pods. Others
// may have addresses that are not those of the pods' status.
const managedBy = "endpointslice-controller.k8s.io"

// copyKey names a slice at a version. Its copies in several views may differ; what is shown is
// always computed from the copy itself.
type copyKey struct{ member, version string }

// sliceCopy is what is known of a slice at a version.
type sliceCopy struct {
	checked uint64          // when it was computed: the highest number in state.changed
	other   bool            // it does not depend on this node
	digest  [32]byte        // of the endpoints
	update  *overlay.Update // nil: the slice is as it was read
	last    *overlay.Update // the last one that was not nil
}

// Updates returns updates for the members of a view that differ from what was read, in no order.
func (t *Tracker) Updates(v *view.View) []*overlay.Update {
	now := t.current()
	if now == nil {
		return nil
	}
	snap, err := v.Snapshot()
	if snap == nil || err != nil {
		return nil
	}
	members := snap.Members
	snap.Close()
	updates, unknown := t.known(now, members)
	for _, key := range unknown {
		if u := t.read(now, v, key); u != nil {
			updates = append(updates, u)
		}
	}
	return updates
}

// Recent returns updates for the members of a view that a client which has read the view up to
// the version at may have read in the last outage, in no order.
func (t *Tracker) Recent(v *view.View, at string) []*overlay.Update {
	all := t.shown()
	maps.DeleteFunc(all, func(key copyKey, _ *overlay.Update) bool {
		e, ok := v.Member(key.member)
		return !ok || e.Version != key.version
	})
	t.addEarlier(v, at, all)
	return slices.Collect(maps.Values(all))
}

// addEarlier adds the members that the last process may have shown otherwise than they were read:
// which of them, nobody knows.
func (t *Tracker) addEarlier(v *view.View, at string, all map[copyKey]*overlay.Update) {
	t.lock()
	version, ok := t.loaded[v]
	away := t.state != nil && t.state.away
	if ok && !away && t.Now().Sub(t.loadedAt) > recentFor && t.Now().Sub(t.returnedAt) > recentFor {
		t.loaded, ok = nil, false
	}
	t.mu.Unlock()
	if !ok || versions.Compare(at, version) > 0 { // it was read from this process
		return
	}
	snap, err := v.Snapshot()
	if snap == nil || err != nil {
		return
	}
	members := snap.Members
	snap.Close()
	for _, m := range members {
		key := copyKey{m.Name, m.ResourceVersion}
		o, ok := t.readMember(v, key)
		if !ok || all[key] != nil || !t.mayDiffer(key, o) {
			continue
		}
		if slice, err := decodeSlice(o); err == nil && t.isFollowed(slice) {
			all[key] = t.updateOf(&state{}, slice, 0)
		}
	}
}

// shown returns the last updates of all slices, if clients may still have them.
func (t *Tracker) shown() map[copyKey]*overlay.Update {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[copyKey]*overlay.Update{}
	if t.state == nil || !t.state.away && t.Now().Sub(t.returnedAt) > recentFor {
		return all
	}
	for key, c := range t.copies {
		if c.last != nil {
			all[key] = c.last
		}
	}
	return all
}

// Over returns the update for one slice, or nil if the slice is as it was read.
func (t *Tracker) Over(slice overlay.Object) *overlay.Update {
	now := t.current()
	if now == nil {
		return nil
	}
	m, err := wire.Inspect(slice.Encoding, slice.Bare)
	if err != nil {
		return nil
	}
	return t.compute(now, copyKey{query.MemberName(string(m.Namespace), string(m.Name)), string(m.ResourceVersion)}, slice)
}

// EndsAtReturn reports whether an update is void as soon as the cloud can be reached: the slice of
// the apiservers.
func EndsAtReturn(u *overlay.Update) bool { return isAPIServer(u.Key.Namespace, u.Key.Name) }

// number returns when the slices of a namespace may have changed last.
func (s *state) number(member string) uint64 {
	namespace, _ := query.SplitMember(member)
	return max(s.changed[""], s.changed[namespace])
}

// known returns the updates for slices as far as they are current, and the slices for which it does
// not know that.
func (t *Tracker) known(now *state, members []store.Member) (updates []*overlay.Update, unknown []copyKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range members {
		key := copyKey{m.Name, m.ResourceVersion}
		switch c := t.copies[key]; {
		case c == nil, !c.other && c.checked < now.number(m.Name):
			unknown = append(unknown, key)
		case c.update != nil:
			updates = append(updates, c.update)
		}
	}
	return updates, unknown
}

// read computes the update for a member of a view.
func (t *Tracker) read(now *state, v *view.View, key copyKey) *overlay.Update {
	o, ok := t.readMember(v, key)
	if !ok {
		return nil
	}
	return t.compute(now, key, o)
}

func (t *Tracker) readMember(v *view.View, key copyKey) (overlay.Object, bool) {
	e, ok := v.Member(key.member)
	if !ok || e.Version != key.version {
		return overlay.Object{}, false
	}
	bare, err := v.Read(key.member, e)
	if err != nil {
		t.Log.Error("cached object cannot be read", "err", err)
		return overlay.Object{}, false
	}
	return overlay.Object{Type: sliceType, Encoding: v.Repr.Encoding, Bare: bare}, true
}

// mayDiffer reports whether a slice may depend on this node, without decoding it. Most do not.
func (t *Tracker) mayDiffer(key copyKey, o overlay.Object) bool {
	return isAPIServer(query.SplitMember(key.member)) || bytes.Contains(o.Bare, []byte(t.Node))
}

// isFollowed reports whether a slice is one that apply may change.
func (t *Tracker) isFollowed(slice *discoveryv1.EndpointSlice) bool {
	return isAPIServer(slice.Namespace, slice.Name) || slice.Labels[discoveryv1.LabelManagedBy] == managedBy
}

// compute computes the update for a slice.
func (t *Tracker) compute(now *state, key copyKey, o overlay.Object) *overlay.Update {
	if !t.mayDiffer(key, o) {
		return t.keep(now, key, nil, nil)
	}
	slice, err := decodeSlice(o)
	if err != nil {
		t.Log.Error("cached object cannot be read", "err", err)
		return nil
	}
	if !t.isFollowed(slice) {
		return t.keep(now, key, nil, nil)
	}
	laid, changed := t.apply(now, slice)
	if !changed {
		laid = nil
	}
	return t.keep(now, key, slice, laid)
}

// apply returns a slice as it is shown.
func (t *Tracker) apply(now *state, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, bool) {
	switch {
	case !isAPIServer(slice.Namespace, slice.Name):
		return Apply(slice, t.Node, now.inNamespace(slice.Namespace))
	case now.away:
		return LeadToHub(slice, t.APIServer)
	}
	return slice, false
}

// keep keeps what was computed for a slice: laid is nil if it is as it was read, and slice is nil
// if it does not depend on this node.
func (t *Tracker) keep(now *state, key copyKey, slice, laid *discoveryv1.EndpointSlice) *overlay.Update {
	var digest [32]byte
	if laid != nil {
		digest = digestOf(laid)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.copies[key]
	if c == nil {
		if laid == nil && !now.away {
			return nil // the cloud's, as it is
		}
		c = &sliceCopy{}
		t.copies[key] = c
	}
	number := now.number(key.member)
	if c.checked > number {
		return c.update // of a newer state
	}
	c.other, c.checked = slice == nil, number
	switch {
	case laid == nil:
		c.update = nil
	case c.update == nil || c.digest != digest:
		t.revision++
		c.digest, c.update = digest, t.updateOf(now, slice, t.revision)
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

// updateOf returns the update for copies of a slice in a state.
func (t *Tracker) updateOf(now *state, slice *discoveryv1.EndpointSlice, revision uint64) *overlay.Update {
	key := overlay.Key{Group: discoveryv1.GroupName, Version: "v1", Resource: "endpointslices", Namespace: slice.Namespace, Name: slice.Name}
	pods := now.inNamespace(slice.Namespace) // not those of all namespaces
	only := &state{away: now.away, complete: pods.Complete, pods: map[string][]*corev1.Pod{slice.Namespace: pods.List}, owners: pods.Owners}
	return overlay.Computed(key, sliceType, string(slice.UID), slice.ResourceVersion, revision, func(cached overlay.Object) (overlay.Object, error) {
		copied, err := decodeSlice(cached)
		if err != nil {
			return overlay.Object{}, err
		}
		laid, changed := t.apply(only, copied)
		if !changed {
			return cached, nil
		}
		laid.ResourceVersion = versionOf(copied.ResourceVersion, revision)
		bare, err := convert.ToBare(cached.Encoding, laid)
		return overlay.Object{Type: sliceType, Encoding: cached.Encoding, Bare: bare}, err
	})
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

func decodeSlice(o overlay.Object) (*discoveryv1.EndpointSlice, error) {
	object, err := convert.FromBare(o.Encoding, sliceType, o.Bare)
	if err != nil {
		return nil, err
	}
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, fmt.Errorf("decode %T: %w", object, wire.ErrMalformed)
	}
	return slice, nil
}
