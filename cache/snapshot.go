package cache

import (
	"slices"
	"strings"
	"weak"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// snapshot is a view's members at one version. What was not on disk yet is held by it;
// the rest is read from the disk through its reader. Snapshots of a view that does not
// change share what they hold.
type snapshot struct {
	version string
	changed string
	meta    wire.ListMeta
	members []store.Member // shared; only the slice may be cut
	pending *unwritten     // nil is empty
	reader  *store.Reader
	// added are members of which there are no bytes: only the node's own status has brought
	// them.
	added map[string]bool
}

// close lets go of what the snapshot keeps on disk. It has to be called once.
func (s *snapshot) close() { s.reader.Close() }

// unwritten is objects that waited for the disk, by name. Nobody may change it.
type unwritten struct{ objects map[string][]byte }

// snapshot returns nil where the view cannot answer.
func (v *view) snapshot() (*snapshot, error) {
	s, w := v.disk.Now()
	reader := v.readerOf(s) // from here on nothing that is in the index goes
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
	return &snapshot{
		version: v.version, changed: v.header.Changed, reader: reader,
		meta: wire.ListMeta{
			TypeMeta: wire.TypeMeta{APIVersion: v.header.APIVersion, Kind: v.header.Kind}, ResourceVersion: v.version, Sorted: v.header.Sorted,
		},
		members: v.sortedLocked(), pending: v.unwrittenLocked(w),
	}, nil
}

// unwrittenLocked returns the members that wait for the disk, as they did when a
// snapshot that is still there was taken: there are no more of them now.
func (v *view) unwrittenLocked(w *store.Writer) *unwritten {
	if w.Pending() == 0 {
		return nil
	}
	if known := v.unwritten.Value(); known != nil {
		return known
	}
	u := &unwritten{map[string][]byte{}}
	for name, e := range v.index {
		if b, ok := w.Object(v.object(name, e)); ok {
			u.objects[name] = b
		}
	}
	v.unwritten = weak.Make(u)
	return u
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

// next calls fn for the next members, about limit bytes of them or one that is larger,
// and takes them off the snapshot. Bytes are valid until fn returns.
func (s *snapshot) next(limit int, fn func(store.Object) error) error {
	m := s.members[0]
	if b, ok := s.unwritten(m); ok {
		if err := fn(store.Object{Name: m.Name, ResourceVersion: m.ResourceVersion, Bytes: b}); err != nil {
			return err
		}
		s.members = s.members[1:]
		return nil
	}
	n, err := s.reader.Read(s.stored(limit), fn)
	s.members = s.members[n:]
	return err
}

// stored returns the first members, which are on disk.
func (s *snapshot) stored(limit int) []store.Member {
	n, size := 1, s.members[0].Size
	for ; n < len(s.members); n++ {
		if size += s.members[n].Size; size > limit {
			break
		}
		if _, ok := s.unwritten(s.members[n]); ok {
			break
		}
	}
	return s.members[:n]
}

// unwritten returns the bytes of a member that is not read from the disk. There are none
// of one that only the node's own status has brought.
func (s *snapshot) unwritten(m store.Member) ([]byte, bool) {
	if s.added[m.Name] {
		return nil, true
	}
	if s.pending == nil {
		return nil, false
	}
	b, ok := s.pending.objects[m.Name]
	return b, ok
}
