package view

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	wal "github.com/edgehub-io/edgehub/cache/log"
)

// This file has what of a resource is on disk besides its views: a table of the log, with a row for the bounds, and one for each entry.

// resourcePrefix begins the names of resources' tables. Their resourceKey follows, as JSON.
const resourcePrefix = "objects "

// resourceName is the name of a resource's table.
type resourceName struct {
	User     string `json:"user"`
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"`
}

func (k *resourceKey) table() string {
	return resourcePrefix + string(asJSON(resourceName{k.user, k.Group, k.Resource}))
}

// savedEntry is the row of an entry. Its bodies are those of the copies.
type savedEntry struct {
	state

	Version string      `json:"version,omitempty"`
	ObjUID  types.UID   `json:"objectUID,omitempty"`
	Copies  []savedCopy `json:"copies,omitempty"`
}

type savedCopy struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Form       string `json:"form"` // see wire.Representation
	Size       int    `json:"size"`
}

func asJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and bools
	}
	return b
}

// row returns the row of an entry. given are bytes of its copies; the log holds the others.
func (e *entry) row(name string, given ...[]byte) wal.Row {
	s, r := savedEntry{state: e.state, Version: e.version()}, wal.Row{Key: name}
	for i := range e.copies {
		c := &e.copies[i]
		s.ObjUID = c.UID
		s.Copies = append(s.Copies, savedCopy{c.Type.APIVersion, c.Type.Kind, c.Repr.String(), c.size})
		b := wal.Body{Sum: c.sum}
		for _, bytes := range given {
			if len(bytes) == c.size && wal.SumOf(bytes) == c.sum {
				b.Bytes = bytes
			}
		}
		r.Bodies = append(r.Bodies, b)
	}
	r.Value = asJSON(s)
	return r
}

// saveEntryLocked queues what is known of an object, or that it is nothing. later means that it may wait for another commit.
func (r *resource) saveEntryLocked(name string, later bool, given [][]byte) {
	c := wal.Change{Table: r.table()}
	if e := r.entries[name]; e != nil {
		c.Put = []wal.Row{e.row(name, given...)}
	} else {
		c.Delete = []string{name}
	}
	r.saveLocked(c, later)
}

// saveBoundsLocked queues what is known of all objects.
func (r *resource) saveBoundsLocked() {
	r.saveLocked(wal.Change{Table: r.table(), Put: []wal.Row{r.boundsRow()}}, false)
}

func (r *resource) boundsRow() wal.Row { return wal.Row{Key: rowHeader, Value: asJSON(r.bounds)} }

func (r *resource) saveLocked(c wal.Change, later bool) {
	r.saved = true
	r.put(c, later)
}

// clearLocked queues the removal of all that is known besides views.
func (r *resource) clearLocked() {
	if r.saved {
		r.put(wal.Change{Table: r.table(), Clear: true}, false)
	}
}

func (r *resource) rowsLocked() []wal.Row {
	rows := []wal.Row{r.boundsRow()}
	for _, name := range slices.Sorted(maps.Keys(r.entries)) {
		rows = append(rows, r.entries[name].row(name))
	}
	return rows
}

// resourceKeyOf returns the key of the resource that a table is of, or false if it is of none.
func resourceKeyOf(table string) (key resourceKey, ok bool) {
	var name resourceName
	text, ok := strings.CutPrefix(table, resourcePrefix)
	if !ok || json.Unmarshal([]byte(text), &name) != nil {
		return key, false
	}
	key = resourceKey{schema.GroupResource{Group: name.Group, Resource: name.Resource}, name.User}
	return key, key.table() == table
}

// resourceOf returns the resource that a table is of, or nil.
func (s *Views) resourceOf(table string) *resource {
	key, _ := resourceKeyOf(table)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.resources[key]
}
