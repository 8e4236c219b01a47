package view

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// This file has what of a view is on disk: a table of the log, with a row for the header, and one for each member.

// tablePrefix begins the names of views' tables. The key follows.
const tablePrefix = "view "

// tableOf returns the name of a view's table.
func tableOf(key *query.Key) string { return tablePrefix + string(key.Bytes()) }

// keyOfTable returns the key of the view that a table of the log is of, or false if it is of none.
func keyOfTable(table string) (key query.Key, ok bool) {
	text, ok := strings.CutPrefix(table, tablePrefix)
	return key, ok && json.Unmarshal([]byte(text), &key) == nil && tableOf(&key) == table
}

// rowHeader is the key of the header's row. Those of members are their names.
const rowHeader = ""

// viewHeader is what is on disk of a view besides its members.
type viewHeader struct {
	APIVersion string `json:"apiVersion,omitempty"` // of the list
	Kind       string `json:"kind,omitempty"`       // of the list
	Item       string `json:"item,omitempty"`       // kind of the items, if one of them has it
	Sorted     bool   `json:"sorted,omitempty"`     // see wire.ListMeta
	// Updated is when an apiserver last confirmed or changed the view.
	Updated time.Time `json:"updated,omitzero"`
	// Changed is the version of the last known change of a member: between it and the view's version no member has changed,
	// unless within Unfollowed.
	Changed string `json:"changed,omitempty"`
	// Unfollowed is where the view has no events, only a list that has the same members as before.
	Unfollowed span `json:"unfollowed,omitzero"`
	// Denied is set when the apiserver last refused the query, or did not know the kind: the
	// view answers nothing.
	Denied bool `json:"denied,omitempty"`
	// TooLarge means that the last list was too large to be kept: there is nothing else.
	TooLarge bool `json:"tooLarge,omitempty"`
	// Seen is View.seen of a view that is behind.
	Seen string `json:"seen,omitempty"`
	// Boot is the boot ID of the node when this was written.
	Boot string `json:"boot,omitempty"`
}

// span has the versions between two, without these. At both the members are the same; in between they may have changed, and
// changed back.
type span struct {
	After  string `json:"after"`
	Before string `json:"before"`
}

// with returns the shortest span that has all versions of s, and those between two later ones.
func (s span) with(after, before string) span {
	if after == before {
		return s
	}
	if s.After == "" {
		s.After = after
	}
	s.Before = before
	return s
}

// has reports whether a version is in the span.
func (s span) has(version string) bool {
	return s.After != "" && versions.Compare(version, s.After) > 0 && versions.Compare(version, s.Before) < 0
}

// savedHeader is the header's row.
type savedHeader struct {
	viewHeader

	Version  string    `json:"version,omitempty"`
	Complete bool      `json:"complete,omitempty"`
	Used     time.Time `json:"used,omitzero"`
}

func (h *viewHeader) typeMeta() wire.TypeMeta {
	return wire.TypeMeta{APIVersion: h.APIVersion, Kind: h.Kind}
}

// itemType returns the type of the members, if it is known.
func (h *viewHeader) itemType() wire.TypeMeta {
	if h.Kind == "" {
		return wire.TypeMeta{}
	}
	return ItemType(&wire.ListMeta{TypeMeta: h.typeMeta()}, h.Item)
}

func (v *View) rowsLocked() []wal.Row {
	if !v.onDisk || v.stale.Load() {
		return nil
	}
	rows := append(make([]wal.Row, 0, len(v.members)+1), v.headerRowLocked())
	for i := range v.members {
		m := &v.members[i]
		rows = append(rows, m.row(m.Name, nil))
	}
	return rows
}

func (v *View) headerRowLocked() wal.Row {
	h := savedHeader{v.header, v.version, v.complete, time.Unix(0, v.used.Load()).UTC().Truncate(time.Second)}
	if h.Seen, h.Boot = "", v.of.all.Boot; v.behindLocked() {
		h.Seen = v.seen
	}
	value, err := json.Marshal(h)
	if err != nil {
		panic(err) // strings, bools and times
	}
	return wal.Row{Key: rowHeader, Value: value}
}

// row returns the row of a member. bare is nil for bytes that the log holds.
func (rev *Revision) row(name string, bare []byte) wal.Row {
	value := make([]byte, 0, len(rev.Version)+len(rev.UID)+8)
	value = append(binary.AppendUvarint(value, uint64(len(rev.Version))), rev.Version...)
	value = append(binary.AppendUvarint(value, uint64(len(rev.UID))), rev.UID...)
	r := wal.Row{Key: name, Bodies: []wal.Body{{Sum: rev.sum, Bytes: bare}}}
	value = rev.append(value)
	if rev.other != nil {
		value = rev.other.append(value)
		r.Bodies = append(r.Bodies, wal.Body{Sum: rev.other.sum})
	}
	r.Value = value
	return r
}

func (b *body) append(value []byte) []byte {
	return binary.AppendUvarint(append(value, byte(b.encoding)), uint64(b.size))
}

var errRow = errors.New("a row of the cache cannot be read")

func revisionFrom(r *wal.Row) (rev Revision, err error) {
	version, rest, err := cutText(r.Value)
	if err != nil {
		return rev, err
	}
	uid, rest, err := cutText(rest)
	if err != nil || len(r.Bodies) == 0 || len(r.Bodies) > 2 {
		return rev, errRow
	}
	rev = Revision{Version: version, UID: types.UID(uid)}
	for i := range r.Bodies {
		if len(rest) == 0 {
			return rev, errRow
		}
		one := body{encoding: wire.Encoding(rest[0]), sum: r.Bodies[i].Sum}
		size, n := binary.Uvarint(rest[1:])
		if one.size, rest = int(size), rest[min(1+max(n, 0), len(rest)):]; n <= 0 { //nolint:gosec // of bytes that were in memory
			return rev, errRow
		}
		if i == 0 {
			rev.body = one
		} else {
			rev.other = &one
		}
	}
	return rev, nil
}

// cutText cuts a text from the front of a value.
func cutText(value []byte) (text string, rest []byte, err error) {
	length, n := binary.Uvarint(value)
	if n <= 0 || length > uint64(len(value)-n) {
		return "", nil, errRow
	}
	value = value[n:]
	return string(value[:length]), value[length:], nil
}

// saveLocked queues a change of the view, and its header. later means that it may wait for another commit.
func (v *View) saveLocked(c wal.Change, later bool) {
	if v.stale.Load() {
		return
	}
	v.onDisk = true
	c.Table, c.Put = v.table, append(c.Put, v.headerRowLocked())
	v.of.put(c, later)
}

// saveHeaderLocked queues the header of a view that is on disk.
func (v *View) saveHeaderLocked() {
	if v.onDisk {
		v.saveLocked(wal.Change{}, false)
	}
}
