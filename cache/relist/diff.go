package relist

import (
	"bytes"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// event is a watch event derived from a list.
type event struct {
	kind    watch.EventType
	version string
	object  []byte
}

// diff returns the events that lead from one state of a view to another. Deletions come
// first: of objects that are gone, and of those that another object of the same name has
// replaced. They carry the old state's version: a client that disconnects among them resumes
// there, and has to list, so it misses no later event. The other events follow in the order
// of their versions. The result ends early if it exceeds maxDiffBytes. A member that has
// other bytes at the same version is an error: see errRewritten.
func diff(old *view.Snapshot, b *view.Builder) ([]byte, error) {
	d := differ{old: old.Version, now: b}
	seen := make(map[string]bool, len(b.Items))
	// Only what has changed is read from the disk.
	var changed []store.Member
	for _, m := range old.Members {
		item, still := b.Items[m.Name]
		seen[m.Name] = true
		switch {
		case !still || item.Version != m.ResourceVersion:
			changed = append(changed, m)
		case item.Member(m.Name) != m:
			return nil, errRewritten
		}
	}
	old.Members = changed
	for len(old.Members) > 0 && d.size <= maxDiffBytes {
		if err := old.Next(256<<10, d.changed); err != nil {
			return nil, err
		}
	}
	for name := range b.Items {
		if !seen[name] {
			if err := d.update(watch.Added, name); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(d.updates, func(x, y event) int { return versions.Compare(x.version, y.version) })
	return encodeEvents(append(d.deletions, d.updates...), b), nil
}

// differ collects the events of diff.
type differ struct {
	old                string // version
	now                *view.Builder
	deletions, updates []event
	size               int // of all objects, in bytes
}

// changed adds the events of an object that has changed, or is gone.
func (d *differ) changed(o store.Object) error {
	e := d.now.View.Repr.Encoding
	item, still := d.now.Items[o.Name]
	if still && item.Bytes == nil {
		return errMoved
	}
	if still {
		same, err := sameUID(e, o.Bytes, item.Bytes)
		if err != nil {
			return err
		}
		if same {
			return d.update(watch.Modified, o.Name)
		}
	}
	object, err := wire.SetVersion(e, o.Bytes, d.old)
	if err != nil {
		return err
	}
	d.deletions = append(d.deletions, event{watch.Deleted, d.old, object})
	d.size += len(object)
	if still {
		return d.update(watch.Added, o.Name)
	}
	return nil
}

// update adds the event of an object that exists now.
func (d *differ) update(kind watch.EventType, name string) error {
	item := d.now.Items[name]
	if item.Bytes == nil {
		return errMoved
	}
	d.updates = append(d.updates, event{kind, item.Version, item.Bytes})
	d.size += len(item.Bytes)
	return nil
}

// errMoved is returned if the view had an object when the list was read, and no longer has
// it: the list does not show which event the view's clients need.
var errMoved = errors.New("the view has changed while it was listed")

// errRewritten is returned if a member has other contents at the same version: a
// CustomResourceDefinition has a new default, or etcd was restored. An event for it would
// take clients back to that version; they have to list.
var errRewritten = errors.New("an object has other contents at the same version")

func sameUID(e wire.Encoding, a, b []byte) (bool, error) {
	first, err := wire.Inspect(e, a)
	if err != nil {
		return false, err
	}
	second, err := wire.Inspect(e, b)
	return bytes.Equal(first.UID, second.UID), err
}

// encodeEvents returns the events of a watch, in the view's representation.
func encodeEvents(events []event, b *view.Builder) []byte {
	t := view.ItemType(&b.Meta, b.Kind)
	out := []byte{}
	for _, n := range events {
		if len(out) > maxDiffBytes {
			break
		}
		out = wire.AppendEvent(out, b.View.Repr.Encoding, n.kind, t, n.object)
	}
	return out
}
