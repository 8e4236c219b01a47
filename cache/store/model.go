package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// ID identifies a view. It is the caller's hash of the view's key: a SHA-256, or a HMAC if the file
// is encrypted. The zero ID is no view.
type ID [32]byte

// String returns the first part, which is enough to find the view in a log.
func (id ID) String() string { return hex.EncodeToString(id[:6]) }

// Header is the part of a view that the caller determines.
type Header struct {
	Key             []byte // the query; opaque
	Scope           string // of all of its objects; see ObjectKey
	ResourceVersion string // of the members as a set
	Complete        bool   // the members are all that the query returns
	LastUsed        time.Time
	Blob            []byte // small and opaque
}

// View is a view's header, and what the store knows about the view.
type View struct {
	ID ID
	Header
	// Stale is set when a change was lost: the members are those of ResourceVersion, but an
	// apiserver has served a newer version.
	Stale   bool
	Members int
	// Bytes is the size of the members and their objects. An object in two views counts in
	// both.
	Bytes int64
	// Err is set if the header is damaged; all other fields but ID are then zero.
	Err error

	digest digest
}

// Sum identifies the content of an object: the first half of the SHA-256 of its bytes. Name and
// resourceVersion are not enough: the same version has other bytes in a dry run, after its
// CustomResourceDefinition has gained a default, from an apiserver of another version, and
// after etcd was restored from a backup.
type Sum [16]byte

// SumOf returns the Sum of an object's bytes, which may be given in parts.
func SumOf(object ...[]byte) Sum {
	h := sha256.New()
	for _, part := range object {
		h.Write(part)
	}
	var sum [sha256.Size]byte
	return Sum(h.Sum(sum[:0])[:len(Sum{})])
}

// Member is an object in a view, without its bytes.
type Member struct {
	Name            string // "namespace/name", or "name"
	ResourceVersion string
	Sum             Sum // of the object's bytes
	Size            int // of the object, in bytes
}

// Object is a member with its bytes.
type Object struct {
	Name            string
	ResourceVersion string
	Sum             Sum // SumOf(Bytes), which Commit does not check
	Bytes           []byte
}

// NewObject returns an object with the Sum of its bytes.
func NewObject(name, resourceVersion string, bytes []byte) Object {
	return Object{Name: name, ResourceVersion: resourceVersion, Sum: SumOf(bytes), Bytes: bytes}
}

// ObjectKey identifies an object in the store.
type ObjectKey struct {
	Scope           string // resource and representation; chosen by the caller
	Name            string
	ResourceVersion string
	Sum             Sum
}

func (o *Object) key(scope string) ObjectKey {
	return ObjectKey{scope, o.Name, o.ResourceVersion, o.Sum}
}

// Op is the operation of a Change.
type Op uint8

const (
	// Update changes a view that is at version From and not stale. It creates a missing view if
	// From is "" and New is set.
	Update Op = iota
	// Replace sets the members of the view to Put, and clears View.Stale.
	Replace
	// MarkStale sets View.Stale, if the view exists. One that has lost a change must be dropped.
	MarkStale
	// Drop removes the view, even if it is damaged.
	Drop
)

func (op Op) String() string {
	return [...]string{"update", "replace", "mark stale", "drop"}[op]
}

// Change is a change of one view. Only Update and Replace use Header, Put and Delete.
type Change struct {
	ID     ID
	Op     Op
	From   string // Update: the ResourceVersion that the change starts from
	New    bool   // Update: create the view if it does not exist
	Header Header
	// Put are added or changed members. If Bytes is nil, the object must be stored already, for
	// this view or another one.
	Put    []Object
	Delete []string // Update: names of removed members
}

// Pair is a key of a table and its new value.
type Pair struct {
	Table string
	Key   string
	Value []byte // nil deletes the key
}

// Batch is what one Commit applies.
type Batch struct {
	Changes []Change
	Pairs   []Pair
}

// maxName bounds names, versions, scopes and keys of tables, in bytes. A namespace and a name
// have at most 317.
const maxName = 4096

// Validate returns an ErrInvalid if Commit does not accept the change.
func (c *Change) Validate() error {
	if c.ID == (ID{}) {
		return fmt.Errorf("%w: the zero ID", ErrInvalid)
	}
	if c.Op > Drop {
		return ofView(c.ID, "", fmt.Errorf("%w: operation %d", ErrInvalid, c.Op))
	}
	if c.Op == MarkStale || c.Op == Drop {
		return nil
	}
	if err := validName("scope", c.Header.Scope); err != nil {
		return ofView(c.ID, "", err)
	}
	for i := range c.Put {
		o := &c.Put[i]
		err := cmp.Or(validName("name", o.Name), validName("resourceVersion", o.ResourceVersion))
		if err == nil && o.Sum == (Sum{}) {
			err = fmt.Errorf("%w: no sum", ErrInvalid)
		}
		if err != nil {
			return ofView(c.ID, o.Name, err)
		}
	}
	return nil
}

// Validate returns an ErrInvalid if Commit does not accept the pair.
func (p *Pair) Validate() error {
	if err := validName("table", p.Table); err != nil {
		return err
	}
	if p.Key == "" || len(p.Key) > maxName {
		return fmt.Errorf("%w: table %s: a key of %d bytes", ErrInvalid, p.Table, len(p.Key))
	}
	return nil
}

func validName(what, s string) error {
	if s == "" || len(s) > maxName || strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%w: %s %.40q is empty, has a NUL, or more than %d bytes", ErrInvalid, what, s, maxName)
	}
	return nil
}
