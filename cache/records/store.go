package records

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/table"
	"github.com/edgehub-io/edgehub/cache/versions"
)

const tableRecords = "records"

// savedRecord is a record on disk: of an object, of a resource (without a name), of a user
// (without a resource), or of the table (without a user).
type savedRecord struct {
	User     string         `json:"user"`
	Group    string         `json:"group,omitempty"`
	Version  string         `json:"version,omitempty"`
	Resource string         `json:"resource,omitempty"`
	Name     string         `json:"name,omitempty"`
	Record   *Record        `json:"record,omitempty"`
	State    *resourceState `json:"state,omitempty"`
	Closed   bool           `json:"closed,omitempty"`
	// Lost marks a table that has lost records, until the consequences have been written.
	Lost bool `json:"lost,omitempty"`
}

func (s *savedRecord) of() query.UserResource {
	return query.UserResource{User: s.User, Resource: schema.GroupVersionResource{Group: s.Group, Version: s.Version, Resource: s.Resource}}
}

func savedAs(of query.UserResource) savedRecord {
	return savedRecord{User: of.User, Group: of.Resource.Group, Version: of.Resource.Version, Resource: of.Resource.Resource}
}

// Load reads the records on disk. It may be called again after a file was opened late: the records in
// memory are newer, and are written to that file. After all views are loaded, the caller must call Distrust.
func (r *Records) Load(d *disk.Disk, log *slog.Logger) error {
	t, err := table.Open(d, tableRecords, log)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table = t
	if err := d.CheckTable(tableRecords); errors.Is(err, store.ErrCorrupt) {
		log.Warn("records of deleted and refused objects are damaged or missing; single objects are not answered from the cache until they have been read again from the cloud", "err", err)
		r.loseLocked()
	} else if err != nil {
		return fmt.Errorf("check the records of deleted and refused objects: %w", err)
	}
	found, err := readRecords(t)
	if err != nil {
		return fmt.Errorf("read the records of deleted and refused objects: %w", err)
	}
	for i := range found {
		r.takeLocked(&found[i])
	}
	for user := range r.users {
		r.saveUserLocked(user)
	}
	for of, resource := range r.of {
		r.saveStateLocked(of)
		for name := range resource.names {
			r.saveLocked(of, name)
		}
	}
	return nil
}

// readRecords returns the records on disk in an order that does not depend on the keys: if there
// are too many, each start keeps the same ones. Users come last: the record of a closed user is
// about further resources, not about those on disk.
func readRecords(t *table.Table) (found []savedRecord, err error) {
	err = t.All(func(key string, value []byte) {
		var s savedRecord
		if json.Unmarshal(value, &s) != nil || s.User == "" && !s.Lost {
			t.Delete(key)
			return
		}
		found = append(found, s)
		if now := t.Key(s.key()...); now != key {
			t.Delete(key) // its salt was lost; it is written again with the new one
		}
	})
	slices.SortFunc(found, func(a, b savedRecord) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), slices.Compare(a.key(), b.key()))
	})
	return found, err
}

// rank puts the states of resources first, and users last.
func (s *savedRecord) rank() int {
	switch {
	case s.State != nil:
		return 0
	case s.Record != nil:
		return 1
	}
	return 2
}

// key returns the parts of the record's key in the table.
func (s *savedRecord) key() []string {
	key := []string{s.User}
	switch {
	case s.Lost:
		return []string{}
	case s.Resource != "":
		of := s.of()
		key = append(key, of.Resource.String())
	}
	if s.Name != "" {
		key = append(key, s.Name)
	}
	return key
}

// takeLocked adds a record from the disk, unless memory has a newer one.
func (r *Records) takeLocked(s *savedRecord) {
	of := s.of()
	switch {
	case s.Lost:
		r.lost = true
		return
	case s.Resource == "":
		if r.users[s.User] == nil {
			r.users[s.User] = new(userRecord)
		}
		r.users[s.User].closed = r.users[s.User].closed || s.Closed
		return
	case s.State != nil && r.of[of] == nil:
		if resource := r.resourceLocked(of); resource != nil {
			resource.resourceState = *s.State
		}
	case s.State != nil:
		r.of[of].mergeState(s.State)
	case s.Record != nil:
		if resource := r.resourceLocked(of); resource != nil && resource.names[s.Name] == nil {
			resource.names[s.Name] = s.Record
			r.users[s.User].names++
		}
	}
	r.raiseHighestLocked(of, s)
}

// loseLocked records that unknown records were lost: on disk before any other change, and until
// the consequences have been written, too.
func (r *Records) loseLocked() {
	r.lost = true
	r.putLocked(&savedRecord{Lost: true}, false)
}

// Distrust is called after records and views are loaded. If records were lost, every copy may be
// of an object that is gone or was refused, and an object that no view has may have been seen
// since. So objects of which a user has views are unknown until they are read again.
func (r *Records) Distrust() {
	viewed := r.copies.ResourcesByUser()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.lost {
		return
	}
	for _, resources := range viewed {
		for of := range resources {
			r.unknownLocked(of)
		}
	}
	r.lost = false
	r.putLocked(&savedRecord{Lost: true}, true)
}

// unknownLocked makes everything about a resource unknown, as if it had too many records. If its
// user has too many resources, the user becomes closed.
func (r *Records) unknownLocked(of query.UserResource) {
	resource := r.resourceLocked(of)
	if resource == nil {
		return
	}
	after := versions.Following(r.counted[of.Resource.GroupResource()].Version())
	for name, one := range resource.names {
		known := *one
		known.Allowed, known.Proven = false, ""
		r.setLocked(of, resource, name, &known)
	}
	resource.ByName = true
	r.raiseLocked(of, after)
	r.doubtAllLocked(of, resource, "", after)
}

// mergeState merges a state from the disk: the stricter values apply.
func (resource *resourceRecord) mergeState(s *resourceState) {
	resource.Floor = versions.Higher(resource.Floor, s.Floor)
	resource.ByName = resource.ByName || s.ByName
	for namespace, version := range s.Doubts {
		if resource.Doubts == nil {
			resource.Doubts = map[string]string{}
		}
		resource.Doubts[namespace] = versions.Higher(version, resource.Doubts[namespace])
	}
}

func (r *Records) raiseHighestLocked(of query.UserResource, s *savedRecord) {
	h := r.countLocked(of.Resource.GroupResource())
	if s.State != nil {
		h.Raise(s.State.Floor)
	}
	if s.Record != nil {
		h.Raise(versions.Higher(s.Record.Gone, s.Record.Seen))
	}
}

// saveLocked queues the record of an object for the disk, or its deletion if there is none.
func (r *Records) saveLocked(of query.UserResource, name string) {
	s := savedAs(of)
	s.Name = name
	if resource := r.of[of]; resource != nil {
		s.Record = resource.names[name]
	}
	r.putLocked(&s, s.Record == nil)
}

// saveStateLocked is saveLocked for the state of a resource.
func (r *Records) saveStateLocked(of query.UserResource) {
	s := savedAs(of)
	if resource := r.of[of]; resource != nil {
		s.State = &resource.resourceState
	}
	empty := s.State == nil || s.State.Floor == "" && len(s.State.Doubts) == 0 && !s.State.ByName
	r.putLocked(&s, empty)
}

func (r *Records) saveUserLocked(user string) {
	closed := r.users[user] != nil && r.users[user].closed
	r.putLocked(&savedRecord{User: user, Closed: closed}, !closed)
}

func (r *Records) putLocked(s *savedRecord, remove bool) {
	if r.table == nil {
		return
	}
	key := r.table.Key(s.key()...)
	if remove {
		r.table.Delete(key)
		return
	}
	value, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and bools
	}
	r.table.Put(key, value)
}

// deleteLocked deletes all records of a resource.
func (r *Records) deleteLocked(of query.UserResource, resource *resourceRecord) {
	for name := range resource.names {
		r.setLocked(of, resource, name, &Record{})
	}
	delete(r.of, of)
	r.users[of.User].resources--
	r.saveStateLocked(of)
}
