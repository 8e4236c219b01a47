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

// news is an event that stands for what a list has shown.
type news struct {
	kind    watch.EventType
	version string
	object  []byte
}

// difference is the events that lead from one state of a view to another. First
// come the deletions, of what is gone and of what was replaced by another object of
// the same name. They carry the old state's version, so that a client that breaks
// off among them goes on from there, and is told to list: nothing of what follows is
// missed. Then comes what is there now, in the order of versions. It ends early if
// there are more than maxDifference bytes. There are no events for a member that has other
// bytes at the same version: see errRewritten.
func difference(old *view.Snapshot, st *view.Stage) ([]byte, error) {
	var gone, there []news
	var sum int
	e := st.View.Repr.Encoding
	seen := make(map[string]bool, len(st.Items))
	// Only what has changed is read from the disk.
	var changed []store.Member
	for _, m := range old.Members {
		item, still := st.Items[m.Name]
		seen[m.Name] = true
		switch {
		case !still || item.Version != m.ResourceVersion:
			changed = append(changed, m)
		case item.Member(m.Name) != m:
			return nil, errRewritten
		}
	}
	old.Members = changed
	for len(old.Members) > 0 && sum <= maxDifference {
		err := old.Next(256<<10, func(o store.Object) error {
			item, still := st.Items[o.Name]
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
				gone = append(gone, news{watch.Deleted, old.Version, object})
				sum += len(object)
				kind = watch.Added
			}
			if still {
				there = append(there, news{kind, item.Version, item.Bytes})
				sum += len(item.Bytes)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for name, item := range st.Items {
		if !seen[name] {
			if item.Bytes == nil {
				return nil, errMoved
			}
			there = append(there, news{watch.Added, item.Version, item.Bytes})
			sum += len(item.Bytes)
		}
	}
	slices.SortFunc(there, func(a, b news) int { return versions.Compare(a.version, b.version) })
	return encodeNews(append(gone, there...), st), nil
}

// errMoved is returned where the view had an object when the list brought it, and has
// it no more: the list does not show which event its clients have to get.
var errMoved = errors.New("the view has changed while it was listed")

// errRewritten is returned where a member has other contents at the version that it had: a
// CustomResourceDefinition has gained a default, or etcd was restored. An event for it
// would take its clients back to that version; they have to list.
var errRewritten = errors.New("an object has other contents at the same version")

func sameUID(e wire.Encoding, a, b []byte) (bool, error) {
	first, err := wire.Inspect(e, a)
	if err != nil {
		return false, err
	}
	second, err := wire.Inspect(e, b)
	return bytes.Equal(first.UID, second.UID), err
}

// encodeNews writes events.
func encodeNews(events []news, st *view.Stage) []byte {
	t := view.ItemType(&st.Meta, st.Kind)
	out := []byte{}
	for _, n := range events {
		if len(out) > maxDifference {
			break
		}
		out = wire.AppendEvent(out, st.View.Repr.Encoding, n.kind, t, n.object)
	}
	return out
}
