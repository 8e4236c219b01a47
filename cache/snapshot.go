package cache

import (
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// snapshot is a view's members at one version. What was not on disk yet is held
// by it; the rest is read from the disk through its reader.
type snapshot struct {
	version string
	changed string
	meta    wire.ListMeta
	members []store.Member
	pending map[string][]byte // by name
	reader  *store.Reader     // to be closed
}

// snapshot returns nil where the view cannot answer.
func (v *view) snapshot() (*snapshot, error) {
	s, w := v.disk.now()
	reader := s.NewReader(*v.id.Load(), v.scope) // from here on nothing that is in the index goes
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.usableLocked() {
		reader.Close()
		return nil, nil
	}
	if err := v.loadLocked(); err != nil {
		reader.Close()
		return nil, err
	}
	snap := &snapshot{
		version: v.version, changed: v.header.Changed, reader: reader,
		meta: wire.ListMeta{
			TypeMeta: wire.TypeMeta{APIVersion: v.header.APIVersion, Kind: v.header.Kind}, ResourceVersion: v.version, Sorted: v.header.Sorted,
		},
		members: v.sortedLocked(),
		pending: map[string][]byte{},
	}
	if w.Pending() == 0 {
		return snap, nil
	}
	for name, e := range v.index {
		if b, ok := w.Object(v.object(name, e)); ok {
			snap.pending[name] = b
		}
	}
	return snap, nil
}

// sortedLocked returns the members in order. Nobody may change them. They are kept
// for the next who asks: while the cloud is away nothing changes.
func (v *view) sortedLocked() []store.Member {
	if v.sorted == nil {
		v.sorted = make([]store.Member, 0, len(v.index))
		for name, e := range v.index {
			v.sorted = append(v.sorted, e.member(name))
		}
		slices.SortFunc(v.sorted, func(a, b store.Member) int { return strings.Compare(a.Name, b.Name) })
	}
	return v.sorted
}

// each calls fn for the next members, about 256 KiB of them, and takes them off
// the snapshot. Bytes are valid until fn returns.
func (s *snapshot) next(fn func(store.Object) error) error {
	for len(s.members) > 0 {
		m := s.members[0]
		b, ok := s.pending[m.Name]
		if !ok {
			break
		}
		if err := fn(store.Object{Name: m.Name, ResourceVersion: m.ResourceVersion, Sum: m.Sum, Bytes: b}); err != nil {
			return err
		}
		s.members = s.members[1:]
	}
	stored := s.members
	if len(s.pending) > 0 {
		end := slices.IndexFunc(stored, func(m store.Member) bool { _, ok := s.pending[m.Name]; return ok })
		if end >= 0 {
			stored = stored[:end]
		}
	}
	if len(stored) == 0 {
		return nil
	}
	n, err := s.reader.Read(stored, fn)
	s.members = s.members[n:]
	return err
}
