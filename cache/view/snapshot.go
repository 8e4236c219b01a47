package view

import (
	"maps"
	"slices"
	"strings"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Snapshot is a view's members at one version. It holds the objects that were not on disk
// yet; the rest is read from disk through its reader. Snapshots of the same state share the
// objects that they hold.
type Snapshot struct {
	Version string
	Changed string
	Meta    wire.ListMeta
	Members []store.Member // shared and read-only; the slice itself may be shortened
	part    *part          // see Narrow
	pending *unwritten     // nil if there are none
	Reader  *store.Reader

	view    *View
	damaged []string // members that were known to be
}

// Close closes the reader. It must be called once.
func (s *Snapshot) Close() { s.Reader.Close() }

// unwritten are objects that were not on disk yet, by name. It is read-only.
type unwritten struct{ objects map[string][]byte }

// Snapshot returns the view's current state, or nil if the view cannot answer.
func (v *View) Snapshot() (*Snapshot, error) {
	s, w := v.disk.Now()
	reader := v.readerOf(s) // before the index is read: from here on its objects stay on disk
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
		Meta:    wire.ListMeta{TypeMeta: v.header.typeMeta(), ListMeta: metav1.ListMeta{ResourceVersion: v.version}, Sorted: v.header.Sorted},
		Members: v.sortedLocked(), pending: v.unwrittenLocked(w), view: v,
		damaged: slices.Collect(maps.Keys(v.damaged)),
	}, nil
}

// unwrittenLocked returns the members that are not on disk yet. It reuses the result of an
// earlier snapshot of the same state, which has at least these.
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

// sortedLocked returns the members in order, read-only. The result is kept for the next
// call: while the cloud is away, members do not change.
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

// part are those of a view's members that another query selects.
type part struct{ members []store.Member }

// Narrow leaves the members that find returns, in order: those that another query selects. Snapshots
// of the same state share them, so a client that does not read its answer holds no copy.
func (s *Snapshot) Narrow(q query.Key, find func() ([]store.Member, error)) error {
	whole := s.Members
	if s.part = s.view.partOf(whole, q, nil); s.part == nil {
		members, err := find()
		if err != nil {
			return err
		}
		s.part = s.view.partOf(whole, q, &part{members})
	}
	s.Members = s.part.members
	return nil
}

// partOf returns the part of a view's members that a query selects. If it is not known yet that is
// found, which is kept unless the view has changed.
func (v *View) partOf(whole []store.Member, q query.Key, found *part) *part {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(whole) == 0 || len(v.sorted) == 0 || &v.sorted[0] != &whole[0] {
		return found
	}
	if known := v.parts[q].Value(); known != nil || found == nil {
		return known
	}
	if v.parts == nil {
		v.parts = map[query.Key]weak.Pointer[part]{}
	}
	v.parts[q] = weak.Make(found)
	return found
}

// Members returns the view's members in order, read-only, and their version, also if clients have
// seen a later one; an empty version if they are not known.
func (v *View) Members() (version string, members []store.Member) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.complete || v.stale.Load() || v.loadLocked() != nil {
		return "", nil
	}
	return v.version, v.sortedLocked()
}

// FindMember returns the member of a name.
func FindMember(sorted []store.Member, name string) (store.Member, bool) {
	i, ok := slices.BinarySearchFunc(sorted, name, func(m store.Member, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return store.Member{}, false
	}
	return sorted[i], true
}

// Check returns an error if members cannot be read that were known to be damaged: an answer that has begun
// could only break off.
func (s *Snapshot) Check() error {
	for _, name := range s.damaged {
		if m, ok := FindMember(s.Members, name); ok {
			if _, err := s.Read(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// Read returns the bytes of a member.
func (s *Snapshot) Read(m store.Member) ([]byte, error) {
	if b, ok := s.unwritten(m); ok {
		return b, nil
	}
	var b []byte
	_, err := s.Reader.Read([]store.Member{m}, func(o store.Object) error {
		b = slices.Clone(o.Bytes)
		return nil
	})
	return b, err
}

// Next calls fn for the next members, about limit bytes or one larger member, and removes
// them from the snapshot. The bytes are valid until fn returns.
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

// stored returns the first members that can be read from disk in one go.
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

// unwritten returns the bytes of a member that is not read from disk.
func (s *Snapshot) unwritten(m store.Member) ([]byte, bool) {
	if s.pending == nil {
		return nil, false
	}
	b, ok := s.pending.objects[m.Name]
	return b, ok
}
