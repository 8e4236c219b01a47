package cache

import (
	"errors"
	"hash/maphash"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// maxStage bounds the bytes of a list that is being read: what is larger is
// passed on and not kept. It is what may wait for the disk.
const maxStage = maxPending * 3 / 4

// errStageFull is returned for a list that is too large to be kept.
var errStageFull = errors.New("the list is too large to be kept")

// stage is a view in the making: what a list, or the initial events of a watch,
// has brought so far. Nothing of it can be seen before it is whole. It is for
// one goroutine at a time.
type stage struct {
	view *view
	// began is the view's version at the time of the request. An answer that
	// shows the newest state there is, and is older than that, proves that the
	// apiserver's store was restored from a backup.
	began      string
	consistent bool

	items map[string]staged
	bytes int64
	// ended are the UIDs of the members of the view, at version endedAt, that the stage did
	// not have when it was committed, where that shows that they were deleted; see Cache.ended.
	ended   map[string]types.UID
	endedAt string
	// left are the versions of such members where it only shows that they are no longer in
	// the view.
	left map[string]string
	meta wire.ListMeta
	kind string // of the items, if they say so
}

// staged is an object in a stage. Bytes are nil where the view had the same: equal
// versions do not prove that.
type staged struct {
	entry
	bytes []byte
}

func (v *view) newStage(began string, consistent bool) *stage {
	return &stage{view: v, began: began, consistent: consistent, items: map[string]staged{}}
}

// end lets go of what the stage shares with others. It has to be called once, and
// the stage is not to be changed after that.
func (s *stage) end() {
	for _, item := range s.items {
		s.view.disk.letGo(&item)
	}
}

func (d *disk) letGo(item *staged) {
	if item.bytes != nil {
		d.shared.drop(item.sum)
	}
}

// also makes the stage one that has the items of others.
func (s *stage) also(items map[string]staged) {
	for name, item := range items {
		if item.bytes != nil && s.view.disk.shared.take(item.sum) == nil {
			s.view.disk.shared.put(item.sum, item.bytes)
		}
		s.put(name, item)
	}
}

// put sets an item.
func (s *stage) put(name string, item staged) {
	s.remove(name)
	s.bytes += item.cost(name)
	s.items[name] = item
}

// add takes over an object, bare or self-describing. A copy is made of it unless the
// view, or another stage, has the same bytes.
func (s *stage) add(name, version string, object []byte) error {
	head, rest, err := wire.Bare(s.view.repr.Encoding, object)
	if err != nil {
		return err
	}
	e, has := s.view.recognize(name, version, head, rest)
	item := staged{entry: e}
	if !has {
		item.bytes = s.view.disk.sharedBytes(item.sum, head, rest)
	}
	if s.put(name, item); s.bytes > maxStage {
		return errStageFull
	}
	return nil
}

func (i *staged) cost(name string) int64 { return int64(len(i.bytes) + len(name) + memberCost) }

// recognize returns the entry of an object that was read, and whether it is a member
// whose bytes are at hand. A list that comes again is recognized by quick hashes.
func (v *view) recognize(name, version, head string, rest []byte) (_ entry, has bool) {
	quick := max(maphash.Bytes(v.disk.seed, rest), 1)
	old := v.atHand(name)
	if old.version == version && old.size == len(head)+len(rest) && old.quick == quick {
		return old, true
	}
	e := entry{version, store.SumOf([]byte(head), rest), len(head) + len(rest), quick}
	if has = old.is(e); has { // it came from the disk, or in an event
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.index[name].is(e) {
			v.index[name] = e
		}
	}
	return e, has
}

// atHand returns a member whose bytes are at hand, or an empty entry.
func (v *view) atHand(name string) entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost.Load() || v.loadLocked() != nil {
		return entry{}
	}
	return v.index[name]
}

// sharedBytes returns an object that is given in two parts: the bytes that another
// client has just read, or else a copy.
func (d *disk) sharedBytes(sum store.Sum, head string, rest []byte) []byte {
	if b := d.shared.take(sum); b != nil {
		return b
	}
	b := append(append(make([]byte, 0, len(head)+len(rest)), head...), rest...)
	d.shared.put(sum, b)
	return b
}

// remove takes out an object that was deleted while the initial events came.
func (s *stage) remove(name string) {
	if old, ok := s.items[name]; ok {
		s.view.disk.letGo(&old)
		s.bytes -= old.cost(name)
		delete(s.items, name)
	}
}

// verdict says what commit made of a stage.
type verdict uint8

const (
	taken    verdict = iota
	outdated         // the view is newer
	// restored: the view was newer than the apiservers are, so their store was restored
	// from a backup. The stage is not taken. Drop the view, and list it again.
	restored
)

// commit makes the stage the view's state at version. A view that is at the same
// version has the same members, as a rule. Where it does not (a
// CustomResourceDefinition has gained a default, an apiserver of another version
// answered, etcd was restored from a backup), what was read last counts.
func (s *stage) commit(version string) verdict {
	v := s.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.complete && !v.lost.Load() {
		order := compare(version, v.version)
		switch {
		case order == 0 && v.loadLocked() == nil && v.holdsLocked(s.items):
			v.header.Updated, v.given = v.disk.clock(), true
			v.allowLocked()
			return taken
		case order < 0 && s.consistent && compare(version, s.began) < 0:
			return restored
		case order < 0:
			v.allowLocked()
			return outdated
		}
	}
	if v.complete { // it is lost, or older
		v.seenLocked(v.version)
	}
	if s.consistent && compare(version, s.began) < 0 {
		v.seen = "" // there is no newer state: the store was restored from a backup
	}
	v.replaceLocked(s, version)
	v.catchUpLocked()
	return taken
}

// allowLocked notes that the user may read the view.
func (v *view) allowLocked() {
	if v.header.Denied {
		v.header.Denied = false
		v.disk.change(&store.Change{ID: *v.id.Load(), Op: store.Update, From: v.version, Header: v.headerLocked()})
	}
}

// replaceLocked makes the stage's items the view's members.
func (v *view) replaceLocked(s *stage, version string) {
	s.ended, s.left = v.endedLocked(s.items), v.leftLocked(s.items)
	before := v.version
	s.endedAt = before
	v.highest.raise(version)
	same := v.complete && !v.lost.Load() && compare(version, before) > 0 && v.loaded && v.holdsLocked(s.items)
	v.lost.Store(false)
	v.version, v.complete, v.given = version, true, true
	v.header = viewHeader{
		APIVersion: s.meta.APIVersion, Kind: s.meta.Kind, Item: s.kind, Sorted: s.meta.Sorted,
		Changed: v.header.Changed, Updated: v.disk.clock(),
	}
	if same {
		v.disk.change(&store.Change{ID: *v.id.Load(), Op: store.Update, From: before, Header: v.headerLocked()})
		return
	}
	if !v.key.lasting() { // members that the list does not have may be there all the same
		v.records.forgot(v.key.of(), before)
	}
	v.header.Changed = version
	v.index, v.sorted, v.bytes, v.loaded, v.onDisk = make(map[string]entry, len(s.items)), nil, 0, true, true
	put := make([]store.Object, 0, len(s.items))
	for name, item := range s.items {
		// An item without bytes was the view's when it came. Should it have gone
		// since, the disk refuses the change, and the view is read again.
		put = append(put, store.Object{Name: name, ResourceVersion: item.version, Sum: item.sum, Bytes: item.bytes})
		v.setLocked(name, item.entry)
	}
	v.disk.change(&store.Change{ID: *v.id.Load(), Op: store.Replace, Header: v.headerLocked(), Put: put})
}

// endedLocked returns the UIDs of the members that are not among these, and so are gone: of
// a view that objects leave only by their deletion. A view that proves that by itself needs
// no records.
func (v *view) endedLocked(items map[string]staged) map[string]types.UID {
	if v.lost.Load() || v.key.proves() || !v.key.lasting() || v.loadLocked() != nil {
		return nil
	}
	ended := map[string]types.UID{}
	for name, e := range v.index {
		if _, ok := items[name]; !ok {
			ended[name] = v.uidOf(name, e)
		}
	}
	return ended
}

// leftLocked returns the versions of the members that are not among these: of a view that
// objects leave without being deleted.
func (v *view) leftLocked(items map[string]staged) map[string]string {
	if v.lost.Load() || v.key.lasting() || v.loadLocked() != nil {
		return nil
	}
	left := map[string]string{}
	for name, e := range v.index {
		if _, ok := items[name]; !ok {
			left[name] = e.version
		}
	}
	return left
}

// holdsLocked reports whether these are the view's members.
func (v *view) holdsLocked(items map[string]staged) bool {
	if len(items) != len(v.index) {
		return false
	}
	for name, item := range items {
		if !v.index[name].is(item.entry) {
			return false
		}
	}
	return true
}

// item is an item of a list. See taker.
func (s *stage) item(item []byte, m *wire.Meta) error {
	if len(m.Name) == 0 || len(m.ResourceVersion) == 0 {
		return errNameless
	}
	if s.kind == "" {
		s.kind = string(m.Kind)
	}
	return s.add(memberName(string(m.Namespace), string(m.Name)), string(m.ResourceVersion), item)
}

// list is what the list says of itself. See taker.
func (s *stage) list(m wire.ListMeta) error {
	s.meta = m
	return nil
}

// errNameless is returned for objects that cannot be told apart, such as reviews
// and some metrics.
var errNameless = errors.New("an object has no name or no resourceVersion")
