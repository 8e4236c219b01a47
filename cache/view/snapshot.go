package view

import (
	"slices"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Snapshot is a view's members at one version, whose bytes are read through its reader.
type Snapshot struct {
	Version string
	Meta    wire.ListMeta
	Members []Member // shared and read-only; the slice itself may be shortened
	// Encoding is the one in which members are read if they have it, and else in the other one.
	Encoding wire.Encoding
	part     *part // see Narrow
	Reader   *wal.Reader

	view       *View
	sums       []wal.Sum // of Next
	changed    string    // see viewHeader
	unfollowed span
}

// UnchangedSince reports whether a client that had the members at a version, which is lower than the snapshot's, has them as they
// are now.
func (s *Snapshot) UnchangedSince(version string) bool {
	return versions.Compare(version, s.changed) >= 0 && !s.unfollowed.has(version)
}

// Close closes the reader. It must be called once.
func (s *Snapshot) Close() { s.Reader.Close() }

// Snapshot returns the view's current state, or nil if the view cannot answer.
func (v *View) Snapshot(e wire.Encoding) *Snapshot {
	reader := v.of.all.Disk.NewReader() // before the index is read: from here on its objects can be read
	v.of.lock()
	defer v.of.unlock()
	if !v.usableLocked() {
		reader.Close()
		return nil
	}
	return &Snapshot{
		Version: v.version, Reader: reader, changed: v.header.Changed, unfollowed: v.header.Unfollowed,
		Meta:    wire.ListMeta{TypeMeta: v.header.typeMeta(), ListMeta: metav1.ListMeta{ResourceVersion: v.version}, Sorted: v.header.Sorted},
		Members: v.share(), Encoding: e, view: v,
	}
}

// part are those of a view's members that another query selects.
type part struct{ members []Member }

// Narrow leaves the members that find returns, in order: those that another query selects. Snapshots
// of the same state share them, so a client that does not read its answer holds no copy.
func (s *Snapshot) Narrow(q query.Key, find func() ([]Member, error)) error {
	whole := s.Members
	if s.part = s.partOf(whole, q, nil); s.part == nil {
		members, err := find()
		if err != nil {
			return err
		}
		s.part = s.partOf(whole, q, &part{members})
	}
	s.Members = s.part.members
	return nil
}

// partOf returns the part of the view's members that a query selects. If it is not known yet that is
// found, which is kept unless the view has changed.
func (s *Snapshot) partOf(whole []Member, q query.Key, found *part) *part {
	v := s.view
	v.of.lock()
	defer v.of.unlock()
	if len(whole) == 0 || len(v.members) == 0 || &v.members[0] != &whole[0] {
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
func (v *View) Members() (version string, members []Member) {
	v.of.lock()
	defer v.of.unlock()
	if !v.hasStateLocked() {
		return "", nil
	}
	return v.version, v.share()
}

// FindMember returns the member of a name.
func FindMember(sorted []Member, name string) (Member, bool) {
	rev, ok := (&contents{members: sorted}).get(name)
	return Member{name, rev}, ok
}

// Check returns an error if members cannot be read that were known to be damaged: an answer that has begun
// could only break off.
func (s *Snapshot) Check() error {
	d := &s.view.of.all.damaged
	if d.isEmpty() {
		return nil
	}
	for i := range s.Members {
		m := &s.Members[i]
		if b := m.best(s.Encoding); d.has(b.sum) {
			if _, err := s.view.of.all.read(s.Reader, m.Name, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// Next calls fn for the next members, about limit bytes or one larger member, and removes
// them from the snapshot. The bytes are valid until fn returns.
func (s *Snapshot) Next(limit int, fn func(name string, e wire.Encoding, bare []byte) error) error {
	s.sums = s.sums[:0]
	size := 0
	for i := range s.Members {
		b := s.Members[i].best(s.Encoding)
		if size += b.size; size > limit && len(s.sums) > 0 {
			break
		}
		s.sums = append(s.sums, b.sum)
	}
	var failed error // of fn
	n, err := s.Reader.Read(s.sums, func(n int, bare []byte) error {
		m := &s.Members[n]
		failed = fn(m.Name, m.best(s.Encoding).encoding, bare)
		return failed
	})
	if err != nil && failed == nil {
		m := &s.Members[n]
		err = s.view.of.all.readFailed(m.Name, m.best(s.Encoding), err)
	}
	s.Members = s.Members[n:]
	return err
}

// Converts reports whether a member has to be converted.
func (s *Snapshot) Converts() bool {
	return slices.ContainsFunc(s.Members, func(m Member) bool { return m.in(s.Encoding) == nil })
}
