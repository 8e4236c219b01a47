package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// ID names a view. The caller derives it from the view's key, as a SHA-256 or,
// where the file is encrypted, an HMAC. The zero ID is no view.
type ID [32]byte

// String is short: enough to find the view in a log.
func (id ID) String() string { return hex.EncodeToString(id[:6]) }

// Header is what the caller says about a view.
type Header struct {
	Key             []byte // the query that the ID stands for; opaque
	Scope           string // the scope of all of its objects; see ObjectKey
	ResourceVersion string // the version its members are of
	Complete        bool   // its members are all that the query returns
	LastUsed        time.Time
	Blob            []byte // small and opaque
}

// View is a view's header, with what the store knows about it.
type View struct {
	ID ID
	Header
	// Stale says that a change to the view was lost: its members are those of
	// its version, and an apiserver has served a newer one.
	Stale   bool
	Members int
	// Bytes is the size of its members and their objects. An object that two
	// views hold counts in both.
	Bytes int64
	// Err is set, and nothing else but ID, where the header is damaged.
	Err error

	digest digest
}

// Sum identifies the content of an object: the first half of the SHA-256 of its
// bytes. Name and resourceVersion do not: one version of an object has other bytes
// in a dry run, after its CustomResourceDefinition has gained a default, from an
// apiserver of another version, and after etcd was restored from a backup.
type Sum [16]byte

// SumOf returns the Sum of an object's bytes, which may be in parts that follow each
// other.
func SumOf(object ...[]byte) Sum {
	h := sha256.New()
	for _, part := range object {
		h.Write(part)
	}
	var sum [sha256.Size]byte
	return Sum(h.Sum(sum[:0])[:len(Sum{})])
}

// Member is an object's name in a view, at a version and with a content.
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
	Sum             Sum // SumOf(Bytes); whoever commits an object vouches for that
	Bytes           []byte
}

// NewObject returns an object with the Sum of its bytes.
func NewObject(name, resourceVersion string, bytes []byte) Object {
	return Object{Name: name, ResourceVersion: resourceVersion, Sum: SumOf(bytes), Bytes: bytes}
}

// ObjectKey is what an object is stored under.
type ObjectKey struct {
	Scope           string // resource and representation; chosen by the caller
	Name            string
	ResourceVersion string
	Sum             Sum
}

// key of the member's object in a scope.
func (m *Member) key(scope string) ObjectKey {
	return ObjectKey{scope, m.Name, m.ResourceVersion, m.Sum}
}

func (o *Object) key(scope string) ObjectKey {
	return ObjectKey{scope, o.Name, o.ResourceVersion, o.Sum}
}

// Op is what a Change does to its view.
type Op uint8

const (
	// Update changes a view that is at version From, and is not stale. A view
	// that is not there is made if From is "" and New is set.
	Update Op = iota
	// Replace makes Put the members of the view, whatever was there before.
	Replace
	// MarkStale sets the mark View.Stale, which only Replace takes away. A view
	// that is not there stays so.
	MarkStale
	// Drop removes the view, damaged or not.
	Drop
)

func (op Op) String() string {
	return [...]string{"update", "replace", "mark stale", "drop"}[op]
}

// Change is what a Commit does to one view. Header, Put and Delete are for
// Update and Replace only.
type Change struct {
	ID     ID
	Op     Op
	From   string // Update: the ResourceVersion that the change starts from
	New    bool   // Update: make the view if it is not there
	Header Header
	// Put are members that came or changed. Bytes that are nil stand for an
	// object with that Sum that is stored already, by this view or another one.
	Put    []Object
	Delete []string // Update: names of members that went
}

// Pair is a key of a table with its new value.
type Pair struct {
	Table string
	Key   string
	Value []byte // nil deletes the key
}

// Batch is what one Commit does: all of it or nothing.
type Batch struct {
	Changes []Change
	Pairs   []Pair
}

// maxName bounds names, versions, scopes, and keys of tables, in bytes. A
// namespace and a name have at most 317; three of these fit into a key of bbolt (32,768).
const maxName = 4096

// Validate returns an ErrInvalid for a change that Commit does not take.
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
		if err := validName("name", o.Name); err != nil {
			return ofView(c.ID, o.Name, err)
		}
		if err := validName("resourceVersion", o.ResourceVersion); err != nil {
			return ofView(c.ID, o.Name, err)
		}
		if o.Sum == (Sum{}) {
			return ofView(c.ID, o.Name, fmt.Errorf("%w: no sum", ErrInvalid))
		}
	}
	return nil
}

// Validate returns an ErrInvalid for a pair that Commit does not take.
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
