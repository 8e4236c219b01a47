package cache

import (
	"errors"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// A view can fall behind its clients. A watch that begins above the view's version, after
// the hub was killed with the last second of changes not yet on disk, passes events that
// cannot be applied before the view has been listed again; and some lists pass whole
// without being kept, because they are too large, or because their first pages had to
// make room for others. Where the cloud goes away before the view has caught up, its
// state is older than what clients have seen, and must not be served: what they saw deleted
// would be back. Such a view answers nothing until it has caught up.
//
// It catches up by a list. A watch from the view's version would bring less, but not to
// those who wait for the list to learn what it has changed, nor after a version that the
// apiservers have forgotten.
//
// A hub that restarts remembers it, as far as it was on disk. What a client knew from a hub
// that was killed before does not count, nor do initial events that broke off, nor anything
// from before a reboot: then there are no clients that have seen more, and a node that
// reboots offline reads what is on its disk.

// errBehind is why there is no answer from a view that is older than what was seen of it.
var errBehind = errors.New("what is cached of this is older than what was read last, and the cloud went away before it was read again")

// seenLocked notes that a client has been given the state of the view at a version.
func (v *view) seenLocked(version string) {
	if compare(version, v.seen) > 0 {
		v.seen = version
		v.saveSeenLocked()
	}
}

// saveSeenLocked has the disk know how far behind its clients the view is.
func (v *view) saveSeenLocked() {
	if v.behindLocked() && v.complete && v.onDisk && !v.lost.Load() {
		v.disk.change(&store.Change{ID: *v.id.Load(), Op: store.Update, From: v.version, Header: v.headerLocked()})
	}
}

// bootID identifies the time since the machine was started; it is empty where the kernel
// does not say.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// sawState is seenLocked, and reports whether the view could answer and is behind now.
func (v *view) sawState(version string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	could := v.usableLocked()
	v.seenLocked(version)
	return could && !v.usableLocked()
}

func (v *view) behindLocked() bool { return compare(v.version, v.seen) < 0 }

func (v *view) behind() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.behindLocked()
}

// latest is the latest version of which the view has the state, or a client was given it;
// of a view that is lost, too. An apiserver whose newest state is older has a store that was
// restored from a backup.
func (v *view) latest() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.complete {
		return higher(v.version, v.seen)
	}
	return v.seen
}

// startOver drops a view whose versions mean nothing any more.
func (v *view) startOver() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked()
	v.seen = ""
}

// keepApart keeps the object of an event that its view could not take, so that a GET does
// not show an older one should the cloud go away before the view has caught up. Of a view
// that was evicted nothing is kept; older copies are in doubt then.
func (s *stream) keepApart(c *change) {
	if s.cache.views.holds(s.query.of(), c.name) {
		s.cache.records.doubt(s.query.of(), c.name, preceding(c.version))
	}
	if s.view.position() == "" {
		return
	}
	key := s.view.key
	key.Namespace, key.Labels, key.Fields, key.Single = "", "", "", true
	v := s.cache.views.acquire(key)
	defer v.release()
	v.keepSingle(s.item, c.name, "", c.version, c.object)
	s.cache.views.fit(v)
}

// forms are the views of a query in all representations.
func (x *exchange) forms() []*view {
	var all []*view
	for _, metadata := range []string{metav1.SchemeGroupVersion.Version, ""} {
		for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
			if v := x.cache.views.find(x.query.key(wire.Representation{Encoding: e, Metadata: metadata})); v != nil {
				all = append(all, v)
			}
		}
	}
	return all
}

// outdo has a view that gets its first state, and not the newest there is, be behind what
// the same query returned in other forms: its client may have been given that, converted.
func (x *exchange) outdo(v *view) {
	if v.position() != "" {
		return
	}
	for _, other := range x.forms() {
		if p := other.position(); p != "" {
			v.sawState(p)
		}
	}
}

// passed is called when a client has got a list that was not kept.
func (x *exchange) passed(v *view, version string) {
	if isVersion(version) && v.sawState(version) {
		x.cache.refresh(v, x.req)
	}
}

// tooLarge is called when a client has got a list that is too large to be kept. Which
// version it was of is not known.
func (x *exchange) tooLarge(v *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.complete {
		return
	}
	x.cache.log.Warn("not kept any more: the list has become too large", "view", v.String(), "max", maxStage)
	v.relisting.bar(x.cache.now())
	v.dropLocked()
}

// lastPage reads of a page what it says of its list.
type lastPage struct{ wire.ListMeta }

func (*lastPage) item([]byte, *wire.Meta) error { return nil }

func (p *lastPage) list(m wire.ListMeta) error {
	p.ListMeta = m
	return nil
}
