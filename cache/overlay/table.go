package overlay

import (
	"encoding/json"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Table keeps values on disk. See table.Table.
type Table interface {
	Key(parts ...string) string
	Put(key string, value []byte)
	Delete(keys ...string)
	All(fn func(key string, value []byte)) error
}

// record is an update on disk.
type record struct {
	Key             Key
	UID             string
	ResourceVersion string
	Type            wire.TypeMeta
	Encoding        wire.Encoding
	Bare            []byte
}

// tableKey hashes the names: keys of a table are not encrypted.
func (o *Overlay) tableKey(k *Key) string {
	return o.table.Key(k.Group, k.Version, k.Resource, k.Namespace, k.Name)
}

// keepLocked writes an update to the table, except that of a lease: a kubelet renews it every ten
// seconds.
func (o *Overlay) keepLocked(u *Update) {
	if o.table == nil || !u.Key.isShown() {
		return
	}
	value, err := json.Marshal(record{u.Key, u.UID, u.ResourceVersion, u.Type, u.Encoding, u.Bare})
	if err != nil {
		panic(err) // strings and bytes
	}
	o.table.Put(o.tableKey(&u.Key), value)
}

func (o *Overlay) unkeepLocked(u *Update) {
	if o.table != nil && u.Key.isShown() {
		o.table.Delete(o.tableKey(&u.Key))
	}
}

// Load reads the updates from before a restart. Newer updates win, and unreadable ones are deleted.
func (o *Overlay) Load() error {
	if o.table == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var unread []string
	err := o.table.All(func(key string, value []byte) {
		u, err := readUpdate(value)
		if err != nil || len(o.objects) >= o.max {
			unread = append(unread, key)
		} else if o.objects[u.Key] == nil {
			o.putLocked(u)
		}
	})
	o.table.Delete(unread...)
	o.changedLocked()
	return err
}

func readUpdate(value []byte) (*Update, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, err
	}
	u := &Update{Object: Object{r.Type, r.Encoding, r.Bare}, Key: r.Key, UID: r.UID, ResourceVersion: r.ResourceVersion}
	object, err := convert.FromBare(r.Encoding, r.Type, r.Bare)
	if err != nil {
		return nil, err
	}
	u.selectable(object)
	return u, nil
}
