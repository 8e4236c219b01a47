package view

import (
	"errors"
	"hash/maphash"

	"k8s.io/apimachinery/pkg/types"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// MaxPending bounds the bytes that wait for the disk. It is enough for a list of 10,000 pods.
// If a slow disk exceeds it, views are lost.
const MaxPending = 64 << 20

// MaxListBytes bounds the size of a list that is cached: a larger one is only relayed to
// its client. It follows from how much may wait to be written to the disk.
const MaxListBytes = MaxPending * 3 / 4

// ErrListTooLarge is returned for a list that is larger than MaxListBytes.
var ErrListTooLarge = errors.New("the list is too large to be kept")

// Builder collects the next state of a view: the items of a list, or the initial events of
// a watch. Readers of the view see none of it before Commit. A Builder is for one goroutine
// at a time.
type Builder struct {
	View       *View
	Encoding   wire.Encoding // of the answer
	began      Began
	Consistent bool // the answer shows the newest state

	Items map[string]builderItem
	Bytes int64
	Meta  wire.ListMeta
	Kind  string // of the items, if they have one
}

// builderItem is an object in a Builder. Bytes are nil if the view has the same bytes, and they are known
// to be whole on disk or queued for it; equal versions do not prove that.
type builderItem struct {
	Revision
	Bytes []byte
}

// NewBuilder returns an empty Builder; the caller must call End. began is View.Began when the request was sent; consistent
// means that its answer shows the newest state.
func (v *View) NewBuilder(began Began, consistent bool, e wire.Encoding) *Builder {
	return &Builder{
		View: v, Encoding: e, began: began, Consistent: consistent,
		Items: map[string]builderItem{},
	}
}

// End releases the bytes that the Builder shares with others. It must be called once, and
// the Builder must not be changed after that.
func (b *Builder) End() {
	for _, item := range b.Items {
		b.release(&item)
	}
}

func (b *Builder) release(item *builderItem) {
	if item.Bytes != nil {
		b.View.of.all.interned.Drop(item.sum)
	}
}

// merge adds the items of another Builder.
func (b *Builder) merge(items map[string]builderItem) {
	for name, item := range items {
		if item.Bytes != nil && b.View.of.all.interned.Take(item.sum) == nil {
			b.View.of.all.interned.Put(item.sum, item.Bytes)
		}
		b.put(name, item)
	}
}

// put sets an item.
func (b *Builder) put(name string, item builderItem) {
	b.Remove(name)
	b.Bytes += item.cost(name)
	b.Items[name] = item
}

// Add adds an object, bare or self-describing. It copies the bytes unless the view, or
// another Builder, has the same.
func (b *Builder) Add(name, version string, uid types.UID, object []byte) error {
	head, rest, err := wire.Bare(b.Encoding, object)
	if err != nil {
		return err
	}
	rev, has := b.recognize(name, version, uid, head, rest)
	item := builderItem{Revision: rev}
	if !has {
		item.Bytes = b.View.of.all.interned.Intern(item.sum, head, rest)
	}
	if b.put(name, item); b.Bytes > MaxListBytes {
		return ErrListTooLarge
	}
	return nil
}

func (i *builderItem) cost(name string) int64 { return int64(len(i.Bytes) + len(name) + memberCost) }

// recognize returns the revision of an object, and whether the view has the same bytes. The
// quick hash makes this cheap for a list that was read before. It does not wait for the disk: what another process
// has written does not count until a commit has been given the same, and has checked it.
func (b *Builder) recognize(name, version string, uid types.UID, head string, rest []byte) (_ Revision, has bool) {
	v := b.View
	quick := max(maphash.Bytes(v.of.all.seed, rest), 1)
	old := b.current(name)
	same := old.in(b.Encoding)
	if old.Version == version && same != nil && same.size == len(head)+len(rest) && same.quick == quick {
		return Revision{Version: version, UID: uid, body: *same}, true
	}
	rev := Revision{Version: version, UID: uid, body: body{
		encoding: b.Encoding, size: len(head) + len(rest), sum: wal.SumOf([]byte(head), rest), quick: quick,
	}}
	if !old.has(&rev) {
		return rev, false
	}
	// It came from the disk, or in an event.
	v.of.lock()
	defer v.of.unlock()
	now, _ := v.get(name)
	if !now.has(&rev) || !v.of.all.Disk.Holds(rev.sum) {
		return rev, false
	}
	if now.encoding == b.Encoding {
		now.quick = quick
	} else {
		now.other = &rev.body
	}
	v.set(name, now)
	return rev, true
}

// current returns the revision of a member, or an empty one if the view has no valid bytes of it.
func (b *Builder) current(name string) Revision {
	v := b.View
	v.of.lock()
	defer v.of.unlock()
	rev, _ := v.get(name)
	if v.stale.Load() || v.of.all.damaged.has(rev.sum) || rev.other != nil && v.of.all.damaged.has(rev.other.sum) {
		return Revision{}
	}
	return rev
}

// Remove removes an object that was deleted while the initial events arrived.
func (b *Builder) Remove(name string) {
	if old, ok := b.Items[name]; ok {
		b.release(&old)
		b.Bytes -= old.cost(name)
		delete(b.Items, name)
	}
}

// CommitResult is the result of Commit.
type CommitResult uint8

// Results of Commit.
const (
	Committed CommitResult = iota
	Outdated               // the view is newer, and unchanged
	Restored               // committed, and it shows that the store was restored: see Views.Restored
)

// Commit makes the collected items the view's state at version. A view at the same version
// usually has the same members. If not (a CustomResourceDefinition has a new default, an
// apiserver of another version answered, etcd was restored from a backup), the items that
// were read last replace them.
//
// It also records the deletions that the list shows, and follows a store that was restored. Watches that are ahead of the
// list are opened anew, at its version. If the view takes more than the bound of all alone, it is evicted.
func (s *Views) Commit(b *Builder, version string) CommitResult {
	v := b.View
	if !b.Consistent {
		s.inheritSeen(v)
	}
	result, cuts := b.commit(version)
	switch result {
	case Restored:
		s.restoring.Lock()
		s.restored(v, version, v)
		s.restoring.Unlock()
	case Committed:
		s.asked.listed(v)
		s.recordDeletedPods(b, version)
	case Outdated:
	}
	callAll(cuts)
	if !s.EnforceLimit(v) {
		s.Log.Warn("not kept: it takes more than --cache-max-bytes alone", "view", v.String(), "max", s.Max)
	}
	return result
}

// commit is Commit of the view alone. cuts are those of watches that are ahead of it.
func (b *Builder) commit(version string) (result CommitResult, cuts []func()) {
	v := b.View
	v.of.lock()
	defer v.of.unlock()
	if b.began.isBefore(v) {
		return Outdated, nil // it may be from before a restore
	}
	if b.Consistent && b.began.received == v.received {
		v.received = received{} // there is nothing newer
		v.saveHeaderLocked()
	}
	defer v.denyLocked(false)
	if b.Consistent && versions.Compare(version, b.began.Shown()) < 0 {
		v.of.history.Add(1)
		v.received, v.complete, v.contents = received{}, false, contents{} // versions mean other objects now
		b.replaceLocked(version)
		return Restored, v.feeds.end()
	}
	if v.hasStateLocked() {
		order := versions.Compare(version, v.version)
		switch {
		case order == 0 && b.isUnchangedLocked() && !b.hasBytes():
			v.header.Updated = headerTime()
			return Committed, nil
		case order < 0 && !v.isDamagedLocked(): // otherwise what is newer is not there, or not all
			return Outdated, nil
		}
	}
	if v.complete { // stale, or older than the items
		v.seenLocked(v.version)
	}
	note := b.missingLocked()
	b.replaceLocked(version)
	note()
	return Committed, v.feeds.cuts(true)
}

// replaceLocked makes the Builder's items the view's members.
func (b *Builder) replaceLocked(version string) {
	v := b.View
	before, had := v.version, v.contents
	if v.stale.Load() {
		had = contents{} // the bytes may be lost
	}
	v.of.highest.Raise(version)
	same := v.hasStateLocked() && versions.Compare(version, before) >= 0 && b.isUnchangedLocked()
	changed, unfollowed := version, span{}
	if same {
		changed, unfollowed = v.header.Changed, v.header.Unfollowed.with(before, version)
	}
	v.stale.Store(false)
	v.version, v.complete = version, true
	v.header = viewHeader{
		APIVersion: b.Meta.APIVersion, Kind: b.Meta.Kind, Item: b.Kind, Sorted: b.Meta.Sorted,
		Changed: changed, Unfollowed: unfollowed, Updated: headerTime(),
	}
	if same && !b.hasBytes() {
		v.saveHeaderLocked()
		return
	}
	if !same && !v.Key.Lasting() { // members that the list does not have may still exist
		v.of.raiseLocked(before)
	}
	members := make([]Member, 0, len(b.Items))
	for name, item := range b.Items {
		rev := item.Revision
		if old, ok := had.get(name); ok {
			rev.other = b.otherOf(&old, &rev)
		}
		members = append(members, Member{name, rev})
	}
	v.contents, v.onDisk = newContents(members), true
	put := make([]wal.Row, 0, len(members)+1)
	for i := range members {
		// The log held the bytes of an item that has none. If they are gone by now, it
		// refuses the change, and the view is lost.
		m := &members[i]
		put = append(put, m.row(m.Name, b.Items[m.Name].Bytes))
	}
	v.saveLocked(wal.Change{Clear: true, Put: put}, false)
}

// missingLocked returns what records, when the view has the items of a list, which members it had and has no more. It matters for
// views that cannot prove absence: where objects leave the view only by deletion, the object
// that the view had is deleted. Another object of the same name may exist
// elsewhere: if the UID of the deleted one is unknown, copies of that name are in doubt.
func (b *Builder) missingLocked() (note func()) {
	v := b.View
	lasting, at := v.Key.Lasting(), v.version
	if v.stale.Load() || lasting && v.Key.Proves() {
		return func() {}
	}
	var missing []Member
	for i := range v.members {
		if _, still := b.Items[v.members[i].Name]; !still {
			missing = append(missing, v.members[i])
		}
	}
	return func() {
		for i := range missing {
			m := &missing[i]
			if !lasting {
				v.of.doubtOlderLocked(m.Name, m.Version)
			} else if v.of.goneLocked(m.Name, at, m.UID, true); m.UID == "" {
				v.of.doubtLocked(m.Name, v.of.highest.Version())
			}
		}
	}
}

// otherOf returns the object in the other encoding as it was read before, if that is of the same version and not known to differ.
func (b *Builder) otherOf(old, rev *Revision) *body {
	if old.Version != rev.Version || old.UID != rev.UID {
		return nil
	}
	if same := old.in(rev.encoding); same != nil && same.sum != rev.sum {
		return nil
	}
	other := old.other
	if old.encoding != rev.encoding {
		other = &old.body
	}
	if s := b.View.of.all; other == nil || !s.Disk.Has(other.sum) || s.damaged.has(other.sum) {
		return nil
	}
	return other
}

// hasBytes reports whether an item has bytes that the view may not have.
func (b *Builder) hasBytes() bool {
	for _, item := range b.Items {
		if item.Bytes != nil {
			return true
		}
	}
	return false
}

// isUnchangedLocked reports whether the items are exactly the view's members.
func (b *Builder) isUnchangedLocked() bool {
	members := b.View.members
	if len(b.Items) != len(members) {
		return false
	}
	for i := range members {
		if item, ok := b.Items[members[i].Name]; !ok || !members[i].has(&item.Revision) {
			return false
		}
	}
	return true
}

// Item adds an item of a list. See tee.ItemHandler.
func (b *Builder) Item(item []byte, m *wire.Meta) error {
	if len(m.Name) == 0 || len(m.ResourceVersion) == 0 {
		return ErrNameless
	}
	if b.Kind == "" {
		b.Kind = string(m.Kind)
	}
	return b.Add(query.MemberName(string(m.Namespace), string(m.Name)), string(m.ResourceVersion), types.UID(m.UID), item)
}

// List sets the list's own fields. See tee.ItemHandler.
func (b *Builder) List(m wire.ListMeta) error {
	b.Meta = m
	return nil
}

// ErrNameless is returned for what cannot be told apart or ordered, such as reviews, metrics, and objects of aggregated
// APIs with versions of their own.
var ErrNameless = errors.New("an object has no name, or no resourceVersion that is a number")

// Newest returns the highest version in a list that was not read to its end.
func (b *Builder) Newest() string {
	version := b.Meta.ResourceVersion
	for _, item := range b.Items {
		version = versions.Higher(version, item.Version)
	}
	return version
}

// With returns a Builder of b, the pages of a list so far, and its next page.
func (b *Builder) With(page *Builder) *Builder {
	whole := b.Clone()
	whole.Meta = page.Meta
	whole.merge(page.Items)
	return whole
}

// Clone returns a Builder with the same items, which needs an End of its own.
func (b *Builder) Clone() *Builder {
	c := b.View.NewBuilder(b.began, b.Consistent, b.Encoding)
	c.Kind = b.Kind
	c.merge(b.Items)
	return c
}
