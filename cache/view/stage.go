package view

import (
	"errors"
	"hash/maphash"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// MaxStage bounds the bytes of a list that is being read: what is larger is
// passed on and not kept. It is what may wait for the disk.
const MaxStage = disk.MaxPending * 3 / 4

// ErrStageFull is returned for a list that is too large to be kept.
var ErrStageFull = errors.New("the list is too large to be kept")

// Stage is a view in the making: what a list, or the initial events of a watch,
// has brought so far. Nothing of it can be seen before it is whole. It is for
// one goroutine at a time.
type Stage struct {
	View *View
	// began is the view's version at the time of the request. An answer that
	// shows the newest state there is, and is older than that, proves that the
	// apiserver's store was restored from a backup.
	began      string
	Consistent bool

	Items map[string]staged
	Bytes int64
	// ended are the UIDs of the members of the view, at version endedAt, that the stage did
	// not have when it was committed, where that shows that they were deleted; see Views.Ended.
	ended   map[string]types.UID
	endedAt string
	// left are the versions of such members where it only shows that they are no longer in
	// the view.
	left map[string]string
	Meta wire.ListMeta
	Kind string // of the items, if they say so
}

// staged is an object in a stage. Bytes are nil where the view had the same: equal
// versions do not prove that.
type staged struct {
	Entry
	Bytes []byte
}

// NewStage returns an empty stage, which has to be ended. began is the version of the view when
// the answer was asked for, and consistent says that it shows the newest state there is.
func (v *View) NewStage(began string, consistent bool) *Stage {
	return &Stage{View: v, began: began, Consistent: consistent, Items: map[string]staged{}}
}

// End lets go of what the stage shares with others. It has to be called once, and
// the stage is not to be changed after that.
func (s *Stage) End() {
	for _, item := range s.Items {
		s.letGo(&item)
	}
}

func (s *Stage) letGo(item *staged) {
	if item.Bytes != nil {
		s.View.disk.Shared.Drop(item.sum)
	}
}

// also makes the stage one that has the items of others.
func (s *Stage) also(items map[string]staged) {
	for name, item := range items {
		if item.Bytes != nil && s.View.disk.Shared.Take(item.sum) == nil {
			s.View.disk.Shared.Put(item.sum, item.Bytes)
		}
		s.put(name, item)
	}
}

// put sets an item.
func (s *Stage) put(name string, item staged) {
	s.Remove(name)
	s.Bytes += item.cost(name)
	s.Items[name] = item
}

// Add takes over an object, bare or self-describing. A copy is made of it unless the
// view, or another stage, has the same bytes.
func (s *Stage) Add(name, version string, object []byte) error {
	head, rest, err := wire.Bare(s.View.Repr.Encoding, object)
	if err != nil {
		return err
	}
	e, has := s.View.recognize(name, version, head, rest)
	item := staged{Entry: e}
	if !has {
		item.Bytes = s.View.disk.SharedBytes(item.sum, head, rest)
	}
	if s.put(name, item); s.Bytes > MaxStage {
		return ErrStageFull
	}
	return nil
}

func (i *staged) cost(name string) int64 { return int64(len(i.Bytes) + len(name) + memberCost) }

// recognize returns the entry of an object that was read, and whether it is a member
// whose bytes are at hand. A list that comes again is recognized by quick hashes.
func (v *View) recognize(name, version, head string, rest []byte) (_ Entry, has bool) {
	quick := max(maphash.Bytes(v.disk.Seed, rest), 1)
	old := v.atHand(name)
	if old.Version == version && old.Size == len(head)+len(rest) && old.quick == quick {
		return old, true
	}
	e := Entry{version, store.SumOf([]byte(head), rest), len(head) + len(rest), quick}
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
func (v *View) atHand(name string) Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stale.Load() || v.loadLocked() != nil {
		return Entry{}
	}
	return v.index[name]
}

// Remove takes out an object that was deleted while the initial events came.
func (s *Stage) Remove(name string) {
	if old, ok := s.Items[name]; ok {
		s.letGo(&old)
		s.Bytes -= old.cost(name)
		delete(s.Items, name)
	}
}

// Verdict says what Commit made of a stage.
type Verdict uint8

// What Commit makes of a stage.
const (
	Taken    Verdict = iota
	Outdated         // the view is newer
	// Restored says that the view was newer than the apiservers are, so their store was restored
	// from a backup. The stage is not taken. Drop the view, and list it again.
	Restored
)

// Commit makes the stage the view's state at version. A view that is at the same
// version has the same members, as a rule. Where it does not (a
// CustomResourceDefinition has gained a default, an apiserver of another version
// answered, etcd was restored from a backup), what was read last counts.
func (s *Stage) Commit(version string) Verdict {
	v := s.View
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.complete && !v.stale.Load() {
		order := versions.Compare(version, v.version)
		switch {
		case order == 0 && v.loadLocked() == nil && v.holdsLocked(s.Items):
			v.header.Updated, v.given = v.disk.Clock(), true
			v.allowLocked()
			return Taken
		case order < 0 && s.Consistent && versions.Compare(version, s.began) < 0:
			return Restored
		case order < 0:
			v.allowLocked()
			return Outdated
		}
	}
	if v.complete { // it is stale, or older
		v.seenLocked(v.version)
	}
	if s.Consistent && versions.Compare(version, s.began) < 0 {
		v.seen = "" // there is no newer state: the store was restored from a backup
	}
	v.replaceLocked(s, version)
	v.catchUpLocked()
	return Taken
}

// allowLocked notes that the user may read the view.
func (v *View) allowLocked() {
	if v.header.Denied {
		v.header.Denied = false
		v.disk.Change(&store.Change{ID: v.DiskID(), Op: store.Update, From: v.version, Header: v.headerLocked()})
	}
}

// replaceLocked makes the stage's items the view's members.
func (v *View) replaceLocked(s *Stage, version string) {
	s.ended, s.left = v.endedLocked(s.Items), v.leftLocked(s.Items)
	before := v.version
	s.endedAt = before
	v.Highest.Raise(version)
	same := v.complete && !v.stale.Load() && versions.Compare(version, before) > 0 && v.loaded && v.holdsLocked(s.Items)
	v.stale.Store(false)
	v.version, v.complete, v.given = version, true, true
	v.header = viewHeader{
		APIVersion: s.Meta.APIVersion, Kind: s.Meta.Kind, Item: s.Kind, Sorted: s.Meta.Sorted,
		Changed: v.header.Changed, Updated: v.disk.Clock(),
	}
	if same {
		v.disk.Change(&store.Change{ID: v.DiskID(), Op: store.Update, From: before, Header: v.headerLocked()})
		return
	}
	if !v.Key.Lasting() { // members that the list does not have may be there all the same
		v.records.Forgot(v.Key.UserResource(), before)
	}
	v.header.Changed = version
	v.index, v.sorted, v.bytes, v.loaded, v.onDisk = make(map[string]Entry, len(s.Items)), nil, 0, true, true
	put := make([]store.Object, 0, len(s.Items))
	for name, item := range s.Items {
		// An item without bytes was the view's when it came. Should it have gone
		// since, the disk refuses the change, and the view is read again.
		put = append(put, store.Object{Name: name, ResourceVersion: item.Version, Sum: item.sum, Bytes: item.Bytes})
		v.setLocked(name, item.Entry)
	}
	v.disk.Change(&store.Change{ID: v.DiskID(), Op: store.Replace, Header: v.headerLocked(), Put: put})
}

// endedLocked returns the UIDs of the members that are not among these, and so are gone: of
// a view that objects leave only by their deletion. A view that proves that by itself needs
// no records.
func (v *View) endedLocked(items map[string]staged) map[string]types.UID {
	if v.stale.Load() || v.Key.Proves() || !v.Key.Lasting() || v.loadLocked() != nil {
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
func (v *View) leftLocked(items map[string]staged) map[string]string {
	if v.stale.Load() || v.Key.Lasting() || v.loadLocked() != nil {
		return nil
	}
	left := map[string]string{}
	for name, e := range v.index {
		if _, ok := items[name]; !ok {
			left[name] = e.Version
		}
	}
	return left
}

// holdsLocked reports whether these are the view's members.
func (v *View) holdsLocked(items map[string]staged) bool {
	if len(items) != len(v.index) {
		return false
	}
	for name, item := range items {
		if !v.index[name].is(item.Entry) {
			return false
		}
	}
	return true
}

// Item is an item of a list. See tee.ItemHandler.
func (s *Stage) Item(item []byte, m *wire.Meta) error {
	if len(m.Name) == 0 || len(m.ResourceVersion) == 0 {
		return ErrNameless
	}
	if s.Kind == "" {
		s.Kind = string(m.Kind)
	}
	return s.Add(query.MemberName(string(m.Namespace), string(m.Name)), string(m.ResourceVersion), item)
}

// List is what the list says of itself. See tee.ItemHandler.
func (s *Stage) List(m wire.ListMeta) error {
	s.Meta = m
	return nil
}

// ErrNameless is returned for objects that cannot be told apart, such as reviews
// and some metrics.
var ErrNameless = errors.New("an object has no name or no resourceVersion")

// Newest is the highest version in a list that was not read to its end.
func (s *Stage) Newest() string {
	version := s.Meta.ResourceVersion
	for _, item := range s.Items {
		version = versions.Higher(version, item.Version)
	}
	return version
}

// Keep is a stage of the same contents with an end of its own.
func (s *Stage) Keep() *Stage {
	kept := s.View.NewStage(s.began, s.Consistent)
	kept.Kind = s.Kind
	kept.also(s.Items)
	return kept
}
