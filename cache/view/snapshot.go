package view

import (
	"slices"
	"strings"
	"weak"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Snapshot is a view's members at one version. What was not on disk yet is held by it;
// the rest is read from the disk through its reader. Snapshots of a view that does not
// change share what they hold.
type Snapshot struct {
	Version string
	Changed string
	Meta    wire.ListMeta
	Members []store.Member // shared; only the slice may be cut
	pending *unwritten     // nil is empty
	Reader  *store.Reader
	// Added are members of which there are no bytes: only the node's own status has brought
	// them.
	Added map[string]bool
}

// Close lets go of what the snapshot keeps on disk. It has to be called once.
func (s *Snapshot) Close() { s.Reader.Close() }

// unwritten is objects that waited for the disk, by name. Nobody may change it.
type unwritten struct{ objects map[string][]byte }

// Snapshot returns nil where the view cannot answer.
func (v *View) Snapshot() (*Snapshot, error) {
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
	return &Snapshot{
		Version: v.version, Changed: v.header.Changed, Reader: reader,
		Meta: wire.ListMeta{
			TypeMeta: wire.TypeMeta{APIVersion: v.header.APIVersion, Kind: v.header.Kind}, ResourceVersion: v.version, Sorted: v.header.Sorted,
		},
		Members: v.sortedLocked(), pending: v.unwrittenLocked(w),
	}, nil
}

// unwrittenLocked returns the members that wait for the disk, as they did when a
// snapshot that is still there was taken: there are no more of them now.
func (v *View) unwrittenLocked(w *writeback.Writer) *unwritten {
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
func (v *View) sortedLocked() []store.Member {
	if v.sorted == nil {
		v.sorted = make([]store.Member, 0, len(v.index))
		for name, e := range v.index {
			v.sorted = append(v.sorted, e.Member(name))
		}
		slices.SortFunc(v.sorted, func(a, b store.Member) int { return strings.Compare(a.Name, b.Name) })
	}
	return v.sorted
}

// Next calls fn for the next members, about limit bytes of them or one that is larger,
// and takes them off the snapshot. Bytes are valid until fn returns.
func (s *Snapshot) Next(limit int, fn func(store.Object) error) error {
	m := s.Members[0]
	if b, ok := s.unwritten(m); ok {
		if err := fn(store.Object{Name: m.Name, ResourceVersion: m.ResourceVersion, Bytes: b}); err != nil {
			return err
		}
		s.Members = s.Members[1:]
		return nil
	}
	n, err := s.Reader.Read(s.stored(limit), fn)
	s.Members = s.Members[n:]
	return err
}

// stored returns the first members, which are on disk.
func (s *Snapshot) stored(limit int) []store.Member {
	n, size := 1, s.Members[0].Size
	for ; n < len(s.Members); n++ {
		if size += s.Members[n].Size; size > limit {
			break
		}
		if _, ok := s.unwritten(s.Members[n]); ok {
			break
		}
	}
	return s.Members[:n]
}

// unwritten returns the bytes of a member that is not read from the disk. There are none
// of one that only the node's own status has brought.
func (s *Snapshot) unwritten(m store.Member) ([]byte, bool) {
	if s.Added[m.Name] {
		return nil, true
	}
	if s.pending == nil {
		return nil, false
	}
	b, ok := s.pending.objects[m.Name]
	return b, ok
}
