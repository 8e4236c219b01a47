package store_test

import "github.com/edgehub-io/edgehub/cache/store"

// streamObjects reads a view as the cache does: head gets its header, and each gets its objects in
// order of their names. The Reader that is opened before the members are read keeps objects
// that commits remove meanwhile. An object's bytes are valid until each returns.
func streamObjects(s *store.Store, id store.ID, head func(store.View) error, each func(store.Object) error) error {
	keep := s.NewReader(id, "")
	defer keep.Close()
	v, members, err := s.Members(id)
	if err != nil {
		return err
	}
	if err := head(v); err != nil {
		return err
	}
	r := s.NewReader(id, v.Scope)
	defer r.Close()
	for len(members) > 0 {
		n, err := r.Read(members, each)
		if err != nil {
			return err
		}
		members = members[n:]
	}
	return nil
}

// readObject reads a stored object of any view. Its error is ErrChanged if the object is missing.
func readObject(s *store.Store, scope string, o store.Object) (got []byte, err error) {
	r := s.NewReader(store.ID{}, scope)
	defer r.Close()
	members := []store.Member{{Name: o.Name, ResourceVersion: o.ResourceVersion, Sum: o.Sum, Size: len(o.Bytes)}}
	_, err = r.Read(members, func(o store.Object) error {
		got = o.Bytes
		return nil
	})
	return got, err
}
