package view

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// contents are the members of a view.
type contents struct {
	members []Member // sorted by name
	shared  bool     // others read members, which is copied before it is changed
	// parts of members, by query, are shared by the snapshots of the view's current state.
	parts map[query.Key]weak.Pointer[part]
	bytes int64 // of all members, approximately as they count for the quota
}

// Member is a member of a view.
type Member struct {
	Name string
	Revision
}

func (m *Member) cost() int64 { return int64(m.Size() + len(m.Name) + memberCost) }

func compareNames(a, b Member) int { return strings.Compare(a.Name, b.Name) }

// newContents returns contents of members of different names, which it sorts and keeps.
func newContents(members []Member) contents {
	slices.SortFunc(members, compareNames)
	c := contents{members: members}
	for i := range members {
		c.bytes += members[i].cost()
	}
	return c
}

func (c *contents) find(name string) (at int, ok bool) {
	return slices.BinarySearchFunc(c.members, Member{Name: name}, compareNames)
}

// get returns the revision of a member.
func (c *contents) get(name string) (Revision, bool) {
	i, ok := c.find(name)
	if !ok {
		return Revision{}, false
	}
	return c.members[i].Revision, true
}

func (c *contents) has(name string) bool {
	_, ok := c.find(name)
	return ok
}

func (c *contents) set(name string, rev Revision) {
	c.own()
	m := Member{name, rev}
	i, ok := c.find(name)
	if ok {
		c.bytes -= c.members[i].cost()
		c.members[i] = m
	} else {
		c.members = slices.Insert(c.members, i, m)
	}
	c.bytes += m.cost()
}

func (c *contents) remove(name string) {
	if i, ok := c.find(name); ok {
		c.own()
		c.bytes -= c.members[i].cost()
		c.members = slices.Delete(c.members, i, i+1)
	}
}

// own is called before a change.
func (c *contents) own() {
	if c.parts = nil; c.shared {
		c.members, c.shared = slices.Clone(c.members), false
	}
}

// share returns the members, read-only.
func (c *contents) share() []Member {
	c.shared = true
	return c.members
}

// Usable reports whether the view can answer its query.
func (v *View) Usable() bool {
	v.of.lock()
	defer v.of.unlock()
	return v.usableLocked()
}

// Denied reports whether the user was last refused the view.
func (v *View) Denied() bool {
	v.of.lock()
	defer v.of.unlock()
	return v.header.Denied
}

// Names returns the names of all objects that a user has read, sorted.
func (s *Views) Names(of query.UserResource) []string {
	r := s.find(of)
	if r == nil {
		return nil
	}
	defer r.unlock()
	return slices.Sorted(maps.Keys(r.copiedLocked("")))
}

// Read returns a member, in whatever encoding it has. A damaged one stays a member: an older copy must not take its place.
func (v *View) Read(name string, rev Revision) (Object, error) {
	r := v.of.all.Disk.NewReader()
	defer r.Close()
	bare, err := v.of.all.read(r, name, &rev.body)
	return Object{v.ItemType(), v.Repr(rev.encoding), bare}, err
}

// read reads an object by a reader, which may have been opened when it was still kept. The bytes are valid until the
// reader's next read.
func (s *Views) read(r *wal.Reader, name string, one *body) (bare []byte, err error) {
	_, err = r.Read([]wal.Sum{one.sum}, func(_ int, b []byte) error {
		bare = b
		return nil
	})
	if err != nil {
		return nil, s.readFailed(name, one, err)
	}
	return bare, nil
}

// readFailed returns the error of a read with context.
func (s *Views) readFailed(name string, one *body, err error) error {
	if errors.Is(err, wal.ErrCorrupt) {
		s.damaged.add(one.sum)
	}
	return fmt.Errorf("what is cached of %q is damaged, and is read again from the cloud: %w", name, err)
}

// ItemType returns the type of the view's objects, if it is known.
func (v *View) ItemType() wire.TypeMeta {
	v.of.lock()
	defer v.of.unlock()
	return v.header.itemType()
}

// ItemType returns the type of a list's items: kind, or else the list's kind without the
// suffix List.
func ItemType(m *wire.ListMeta, kind string) wire.TypeMeta {
	if kind == "" {
		kind = strings.TrimSuffix(m.Kind, "List")
	}
	return wire.TypeMeta{APIVersion: m.APIVersion, Kind: kind}
}

// Objects returns all copies of a user's objects of some resources, in all forms. The error is that of reading one.
func (s *Views) Objects(user string, of ...schema.GroupResource) iter.Seq2[Copied, error] {
	return func(yield func(Copied, error) bool) {
		for _, r := range s.allResources() {
			if r.resourceKey.user != user || !slices.Contains(of, r.GroupResource) {
				continue
			}
			for _, c := range r.allCopies() {
				reader := s.Disk.NewReader()
				bare, err := s.read(reader, c.Name, &c.body)
				reader.Close()
				namespace, name := query.SplitMember(c.Name)
				if !yield(Copied{namespace, name, bare}, err) {
					return
				}
			}
		}
	}
}

// Copied is an object as bytes, in some form.
type Copied struct {
	Namespace, Name string
	Bare            []byte
}

func (r *resource) allCopies() (all []Copy) {
	r.lock()
	defer r.unlock()
	for name := range r.copiedLocked("") {
		namespace, _ := query.SplitMember(name)
		k := r.lookLocked(namespace, name)
		all = append(all, k.live...)
	}
	return all
}
