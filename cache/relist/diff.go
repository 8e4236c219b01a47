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
	var deletions, updates []event
	var sum int
	e := b.View.Repr.Encoding
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
	for len(old.Members) > 0 && sum <= maxDiffBytes {
		err := old.Next(256<<10, func(o store.Object) error {
			item, still := b.Items[o.Name]
			if still && item.Bytes == nil {
				return errMoved
			}
			same, err := still, error(nil)
			if same {
				same, err = sameUID(e, o.Bytes, item.Bytes)
			}
			if err != nil {
				return err
			}
			kind := watch.Modified
			if !same {
				object, err := wire.SetVersion(e, o.Bytes, old.Version)
				if err != nil {
					return err
				}
				deletions = append(deletions, event{watch.Deleted, old.Version, object})
				sum += len(object)
				kind = watch.Added
			}
			if still {
				updates = append(updates, event{kind, item.Version, item.Bytes})
				sum += len(item.Bytes)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for name, item := range b.Items {
		if !seen[name] {
			if item.Bytes == nil {
				return nil, errMoved
			}
			updates = append(updates, event{watch.Added, item.Version, item.Bytes})
			sum += len(item.Bytes)
		}
	}
	slices.SortFunc(updates, func(x, y event) int { return versions.Compare(x.version, y.version) })
	return encodeEvents(append(deletions, updates...), b), nil
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
