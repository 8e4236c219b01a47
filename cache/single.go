package cache

import (
	"strconv"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// maxSingles bounds a Single view. A kubelet reads some dozen objects one by one.
const maxSingles = 1024

// keepSingle takes over an object that was read by itself, unless a newer one is
// there; one that is older than what was there when it was asked for, at version
// began, says that the apiservers' store was restored from a backup.
func (v *view) keepSingle(t wire.TypeMeta, name, began, version string, object []byte) {
	v.highest.raise(version)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost.Load() {
		v.dropLocked()
	}
	if v.loadLocked() != nil {
		return
	}
	o := store.NewObject(name, version, object)
	if old, ok := v.index[name]; ok && (old.is(entryOf(&o)) || compare(old.version, version) > 0 && compare(version, began) >= 0) {
		return
	}
	before := v.version
	v.countLocked()
	v.header.APIVersion, v.header.Kind, v.header.Updated = t.APIVersion, t.Kind, v.disk.clock()
	v.setLocked(name, entryOf(&o))
	v.header.Newest = higher(v.header.Newest, version)
	update := store.Change{
		ID: *v.id.Load(), Op: store.Update, From: before, New: before == "",
		Put: []store.Object{o},
	}
	if len(v.index) > maxSingles {
		oldest := v.oldestLocked()
		v.records.forgot(v.key.of(), v.index[oldest].version)
		v.removeLocked(oldest)
		update.Delete = []string{oldest}
	}
	update.Header, v.onDisk = v.headerLocked(), true
	v.disk.change(&update)
}

// countLocked gives a Single view, which has no resourceVersion, the next version.
func (v *view) countLocked() {
	n, _ := strconv.ParseUint(v.version, 10, 64) // "" is 0
	v.version = strconv.FormatUint(n+1, 10)
}

func (v *view) oldestLocked() string {
	var oldest string
	for name, e := range v.index {
		if oldest == "" || compare(e.version, v.index[oldest].version) < 0 {
			oldest = name
		}
	}
	return oldest
}
