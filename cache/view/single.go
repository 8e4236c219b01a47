package view

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// maxSingles bounds a Single view. A kubelet reads a few dozen objects by GET.
const maxSingles = 1024

// KeepSingle adds an object that was read by GET, unless the view has a newer one. began is the
// version that the view had when the request was sent: after a restore of etcd, an older object
// replaces a newer one. Other copies follow at the next list.
func (v *View) KeepSingle(t wire.TypeMeta, name, began, version string, object []byte) {
	v.Highest.Raise(version)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stale.Load() { // what clients have of it is lost
		v.records.Damaged(v.Key.UserResource(), v.latestLocked())
		v.removeFromDiskLocked()
	}
	if v.loadLocked() != nil {
		v.records.Damaged(v.Key.UserResource(), version) // the client has it, the view does not
		return
	}
	o := store.NewObject(name, version, object)
	v.noteShownLocked(name)
	if old, ok := v.index[name]; ok && (old.is(entryOf(&o)) && !v.damaged[name] && v.holdsLocked(name, old) || versions.Compare(old.Version, version) > 0 && versions.Compare(version, began) >= 0) {
		return
	}
	v.header.APIVersion, v.header.Kind = t.APIVersion, t.Kind
	name = strings.Clone(name) // it may be part of a URL
	o.Name = name
	v.set(name, entryOf(&o))
	v.noteShownLocked(name)
	v.header.Newest = versions.Higher(v.header.Newest, version)
	v.changeSingleLocked(&store.Change{Put: []store.Object{o}, Delete: v.makeRoomLocked()})
}

// changeSingleLocked queues a change of the members for the disk. The version of a Single view,
// which has no resourceVersion, counts changes.
func (v *View) changeSingleLocked(c *store.Change) {
	before := v.version
	n, _ := strconv.ParseUint(before, 10, 64) // "" is 0
	v.version = strconv.FormatUint(n+1, 10)
	v.header.Updated = v.disk.Clock()
	c.ID, c.Op, c.From, c.New = v.DiskID(), store.Update, before, before == ""
	c.Header, v.onDisk = v.headerLocked(), true
	v.disk.Change(c)
}

// makeRoomLocked removes the least recently read member if there are too many; of those not read
// since the hub started, the one with the lowest version.
func (v *View) makeRoomLocked() (names []string) {
	if len(v.index) <= maxSingles {
		return nil
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(v.index)), func(a, b string) int {
		return cmp.Or(cmp.Compare(v.reads.last[a], v.reads.last[b]), versions.Compare(v.index[a].Version, v.index[b].Version))
	})
	v.records.SeenUncached(v.Key.UserResource(), v.index[oldest].Version)
	v.remove(oldest)
	return []string{oldest}
}

// reads is the order in which the members of a Single view were read. It is in memory only.
type reads struct {
	n      uint64
	last   map[string]uint64 // by member name
	before uint64            // n at the last call of Views.DropUnread
	// shown is when an apiserver last showed each to a user that is not the node; see Views.Rights.
	shown map[string]time.Time
}

// NoteRead records that a client has read a member of a Single view.
func (v *View) NoteRead(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.noteReadLocked(name)
}

// noteShownLocked records that an apiserver has shown a member of a Single view to its user.
func (v *View) noteShownLocked(name string) {
	v.noteReadLocked(name)
	if _, ok := v.index[name]; !ok || v.Key.User == query.NodeUser {
		return
	}
	if v.reads.shown == nil {
		v.reads.shown = map[string]time.Time{}
	}
	v.reads.shown[name] = time.Now()
}

func (v *View) noteReadLocked(name string) {
	if _, ok := v.index[name]; !ok || !v.Key.Single {
		return
	}
	if v.reads.last == nil {
		v.reads.last = map[string]uint64{}
	}
	v.reads.n++
	v.reads.last[name] = v.reads.n
}

// Gone records that an object does not exist at a version, as Records.Gone does. It also
// removes copies of the object from Single views, where they would take the place of
// existing ones.
func (s *Views) Gone(of query.UserResource, name, version string, uid types.UID, had bool) {
	s.Records.Gone(of, name, version, uid, had)
	k := records.Known{Record: records.Record{Gone: records.OrFirst(version), UID: uid}}
	for _, v := range s.Of(of) {
		if v.Key.Single {
			v.removeIf(name, &k)
		}
	}
}

// removeIf removes a member of a Single view if that is a copy of a deleted object.
func (v *View) removeIf(name string, k *records.Known) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stale.Load() || v.loadLocked() != nil {
		return
	}
	e, ok := v.index[name]
	c := Copy{View: v, Name: name, Entry: e}
	if !ok || !c.isGone(k) {
		return
	}
	v.remove(name)
	v.changeSingleLocked(&store.Change{Delete: []string{name}})
}
