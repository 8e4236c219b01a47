package view

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"weak"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// contents are the members of a view.
type contents struct {
	loaded bool // the index has been read; until then only the header is known
	index  map[string]Entry
	reads  reads          // of the members of a Single view
	sorted []store.Member // members in order; nil after a change
	// parts of sorted, by query, are shared by the snapshots of the view's current state.
	parts map[query.Key]weak.Pointer[part]
	// unwritten is shared by the snapshots of the view's current state.
	unwritten weak.Pointer[unwritten]
	bytes     int64 // of all members, approximately as store.View counts them
	members   int   // according to the header on disk; until loaded
	// damaged are the members whose bytes could not be read; "" if it is not known which they are.
	damaged map[string]bool
}

func (c *contents) set(name string, e Entry) {
	c.remove(name)
	c.index[name] = e
	c.bytes += int64(e.Size + len(name) + memberCost)
}

func (c *contents) remove(name string) {
	c.sorted, c.parts, c.unwritten = nil, nil, weak.Pointer[unwritten]{}
	if old, ok := c.index[name]; ok {
		delete(c.index, name)
		delete(c.damaged, name)
		delete(c.reads.last, name)
		delete(c.reads.shown, name)
		c.bytes -= int64(old.Size + len(name) + memberCost)
	}
}

// Usable reports whether the view can answer its query.
func (v *View) Usable() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.usableLocked()
}

// Denied reports whether the user was last refused the view.
func (v *View) Denied() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.header.Denied
}

// MemberNames returns the names of the view's members, as far as they can be read.
func (v *View) MemberNames() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stale.Load() || v.loadLocked() != nil {
		return nil
	}
	return slices.Collect(maps.Keys(v.index))
}

// NewReader returns a reader of the view's members. Until it is closed, members that exist now
// stay readable.
func (v *View) NewReader() *store.Reader {
	s, _ := v.disk.Now()
	return v.readerOf(s)
}

func (v *View) readerOf(s *store.Store) *store.Reader { return s.NewReader(v.DiskID(), v.Scope) }

// Read returns the bytes of a member. A damaged one stays a member: an older copy must not take its place.
func (v *View) Read(name string, e Entry) ([]byte, error) {
	b, err := v.stored(name, e)
	if err == nil {
		return b, nil
	}
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrChanged) {
		v.damagedIf(name, e)
	}
	return nil, fmt.Errorf("the cache of %s is damaged, and is read again from the cloud: %w", v, err)
}

// stored returns the bytes of a member, on disk or queued for it.
func (v *View) stored(name string, e Entry) ([]byte, error) {
	s, w := v.disk.Now()
	key := v.object(name, e)
	if b, ok := w.Object(key); ok {
		return b, nil
	}
	reader := v.readerOf(s)
	defer reader.Close()
	var b []byte
	_, err := reader.Read([]store.Member{e.Member(name)}, func(o store.Object) error {
		b = o.Bytes // the reader reads nothing else
		return nil
	})
	if err == nil {
		return b, nil
	}
	if b, ok := w.Object(key); ok { // it was queued just now
		return b, nil
	}
	return nil, err
}

// holdsLocked reports whether a member is queued for the disk, or is known to be there without damage.
func (v *View) holdsLocked(name string, e Entry) bool {
	s, w := v.disk.Now()
	key := v.object(name, e)
	if _, waits := w.Object(key); waits || s.Holds(key) {
		return true
	}
	_, waits := w.Object(key) // it was queued just now
	return waits
}

// ReadFailed records that a member could not be read from a snapshot at a version. It returns err with
// context.
func (v *View) ReadFailed(version string, err error) error {
	if !errors.Is(err, store.ErrClosed) {
		name := ""
		if of, ok := errors.AsType[*store.Error](err); ok {
			name = of.Name
		}
		v.damagedAt(version, name)
	}
	return fmt.Errorf("the cache of %s is damaged, and is read again from the cloud: %w", v, err)
}

// ItemType returns the type of the view's objects, if it is known.
func (v *View) ItemType() wire.TypeMeta {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.header.typeMeta()
	switch {
	case t.Kind == "":
		return wire.TypeMeta{}
	case v.Key.Single:
		return t
	}
	return ItemType(&wire.ListMeta{TypeMeta: t}, v.header.Item)
}

// ItemType returns the type of a list's items: kind, or else the list's kind without the
// suffix List.
func ItemType(m *wire.ListMeta, kind string) wire.TypeMeta {
	if kind == "" {
		kind = strings.TrimSuffix(m.Kind, "List")
	}
	return wire.TypeMeta{APIVersion: m.APIVersion, Kind: kind}
}

// pod reads a member that is a pod; nil if it cannot be read.
func (v *View) pod(name string) *corev1.Pod {
	e, ok := v.Member(name)
	if !ok {
		return nil
	}
	bare, err := v.stored(name, e)
	if err != nil {
		return nil
	}
	object, _ := convert.FromBare(v.Repr.Encoding, wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}, bare)
	pod, _ := object.(*corev1.Pod) // nil is no pod
	return pod
}
