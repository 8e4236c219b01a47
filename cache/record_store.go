package cache

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/bucket"
)

const tableRecords = "records"

// savedRecord is a record as it is on disk: of an object, of a resource (without a name), or
// of a user (without a resource).
type savedRecord struct {
	User     string         `json:"user"`
	Group    string         `json:"group,omitempty"`
	Version  string         `json:"version,omitempty"`
	Resource string         `json:"resource,omitempty"`
	Name     string         `json:"name,omitempty"`
	Record   *record        `json:"record,omitempty"`
	State    *resourceState `json:"state,omitempty"`
	Closed   bool           `json:"closed,omitempty"`
}

func (s *savedRecord) of() userResource {
	return userResource{s.User, schema.GroupVersionResource{Group: s.Group, Version: s.Version, Resource: s.Resource}}
}

func savedAs(of userResource) savedRecord {
	return savedRecord{User: of.user, Group: of.resource.Group, Version: of.resource.Version, Resource: of.resource.Resource}
}

// load reads what is on disk. It may be called again, after another file has taken the place
// of one that was damaged or could not be opened: what is in memory is newer, and is written
// to that file, too.
func (r *records) load(d *disk) error {
	table, err := bucket.Open(d, tableRecords, d.log)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table = table
	err = table.All(func(key string, value []byte) {
		var s savedRecord
		if json.Unmarshal(value, &s) != nil || s.User == "" {
			table.Delete(key)
			return
		}
		r.takeLocked(&s)
	})
	if err != nil {
		return fmt.Errorf("read the records of deleted and refused objects: %w", err)
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

// takeLocked takes over what is on disk, where it is not known better.
func (r *records) takeLocked(s *savedRecord) {
	of := s.of()
	switch {
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

// mergeState takes over the stricter of two states.
func (resource *resourceRecord) mergeState(s *resourceState) {
	resource.Floor = higher(resource.Floor, s.Floor)
	resource.ByName = resource.ByName || s.ByName
	for namespace, version := range s.Doubts {
		if resource.Doubts == nil {
			resource.Doubts = map[string]string{}
		}
		resource.Doubts[namespace] = higher(version, resource.Doubts[namespace])
	}
}

func (r *records) raiseHighestLocked(of userResource, s *savedRecord) {
	h := r.countLocked(of.resource.GroupResource())
	if s.State != nil {
		h.raise(s.State.Floor)
	}
	if s.Record != nil {
		h.raise(higher(s.Record.Gone, s.Record.Seen))
	}
}

// saveLocked has the record of an object written, or deleted if there is none.
func (r *records) saveLocked(of userResource, name string) {
	s := savedAs(of)
	s.Name = name
	if resource := r.of[of]; resource != nil {
		s.Record = resource.names[name]
	}
	r.putLocked(&s, s.Record == nil, of.user, of.resource.String(), name)
}

// saveStateLocked is saveLocked for the state of a resource.
func (r *records) saveStateLocked(of userResource) {
	s := savedAs(of)
	if resource := r.of[of]; resource != nil {
		s.State = &resource.resourceState
	}
	empty := s.State == nil || s.State.Floor == "" && len(s.State.Doubts) == 0 && !s.State.ByName
	r.putLocked(&s, empty, of.user, of.resource.String())
}

func (r *records) saveUserLocked(user string) {
	closed := r.users[user] != nil && r.users[user].closed
	r.putLocked(&savedRecord{User: user, Closed: closed}, !closed, user)
}

func (r *records) putLocked(s *savedRecord, remove bool, key ...string) {
	if r.table == nil {
		return
	}
	if remove {
		r.table.Delete(r.table.Key(key...))
		return
	}
	value, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and bools
	}
	r.table.Put(r.table.Key(key...), value)
}

// deleteLocked forgets all of a resource.
func (r *records) deleteLocked(of userResource, resource *resourceRecord) {
	for name := range resource.names {
		r.setLocked(of, resource, name, &record{})
	}
	delete(r.of, of)
	r.users[of.user].resources--
	r.saveStateLocked(of)
}
