package store

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/pagecheck"
	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// Check reads all of the store, and returns all errors that it finds: damage, wrong reference
// counts, and tables that differ from their tallies. Commits wait meanwhile. Only tests call it.
func (s *Store) Check() error {
	s.write.Lock() // the pages must not change while they are read
	defer s.write.Unlock()
	if s.closed {
		return ErrClosed
	}
	err := checkPages(s.dir.file(fileMain), true)
	if err == nil {
		err = guarded(func() error {
			return s.db.View(func(tx *bolt.Tx) error { return errors.Join(s.codec.check(tx), s.codec.checkTallies(tx)) })
		})
	}
	if err != nil {
		return fmt.Errorf("check cache: %w", err)
	}
	return nil
}

// checkPages checks the inner pages of a file, or if full is set all pages. bbolt must not write
// to it meanwhile. The error for damage is ErrDamaged.
func checkPages(path string, full bool) error {
	err := pagecheck.File(path, full, string(bucketMembers), string(bucketTables))
	if _, ok := errors.AsType[*pagecheck.Damage](err); ok {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// checkCopy checks a file that is not in use: its pages, and with check its contents.
func (c codec) checkCopy(path string) error {
	if err := checkPages(path, true); err != nil {
		return err
	}
	return guarded(func() error {
		db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(c.check)
	})
}

// check reads every record, and compares the reference counts of objects with the members of
// views. It returns all errors that it finds.
func (c codec) check(tx *bolt.Tx) error {
	if err := c.checkFile(tx); err != nil {
		return err
	}
	views, err := c.views(tx)
	if err != nil {
		return err
	}
	var wrong []error
	held := map[string]int{}
	for _, v := range views {
		wrong = append(wrong, c.checkView(tx, v, held))
	}
	wrong = append(wrong, c.checkObjects(tx, held), c.checkTables(tx))
	n := 0
	for range entries(tx.Bucket(bucketMembers)) {
		n++
	}
	if n != len(views) {
		wrong = append(wrong, corrupt(fmt.Errorf("%d views have members, of %d", n, len(views))))
	}
	return errors.Join(wrong...)
}

func (c codec) checkView(tx *bolt.Tx, v View, held map[string]int) error {
	if v.Err != nil {
		return v.Err
	}
	members, err := c.members(tx, v)
	for _, m := range members {
		key := c.HashKey(seal.KindObject, nil, m.key(v.Scope).bytes())
		held[string(key)]++
		object, wrong := c.object(tx.Bucket(bucketObjects), key)
		if wrong == nil && len(object) != m.Size {
			wrong = errSize
		}
		if wrong != nil {
			err = errors.Join(err, ofView(v.ID, m.Name, corrupt(wrong)))
		}
	}
	return err
}

// checkObjects checks the objects in the file; held is the number of views that have each.
func (c codec) checkObjects(tx *bolt.Tx, held map[string]int) error {
	rc := &refcount{codec: c, objects: tx.Bucket(bucketObjects), refs: tx.Bucket(bucketRefs), unreferenced: tx.Bucket(bucketUnreferenced)}
	var wrong []error
	for key, record := range entries(rc.objects) {
		n, err := rc.count(key)
		if err == nil && n != held[string(key)] {
			err = corrupt(fmt.Errorf("%d views have it, but its reference count is %d", held[string(key)], n))
		}
		if err := errors.Join(c.checkObject(key, record), err); err != nil {
			wrong = append(wrong, &Error{Name: c.shownObject(key), Err: err})
		}
	}
	for key := range entries(rc.refs) {
		if held[string(key)] < 2 {
			wrong = append(wrong, &Error{Name: c.shownObject(key), Err: corrupt(errors.New("it has a reference count, but at most one view"))})
		}
	}
	return errors.Join(wrong...)
}

func (c codec) checkTables(tx *bolt.Tx) error {
	var wrong []error
	tables := tx.Bucket(bucketTables)
	for name := range entries(tables) {
		table := tables.Bucket(name)
		if table == nil {
			wrong = append(wrong, &Error{Table: string(name), Err: corrupt(errors.New("it is not a table"))})
			continue
		}
		for key, record := range entries(table) {
			if _, _, err := c.Open(seal.At(seal.KindPair, name, key), record); err != nil {
				wrong = append(wrong, &Error{Table: string(name), Name: string(key), Err: err})
			}
		}
	}
	return errors.Join(wrong...)
}

// checkTallies compares all tables with their tallies.
func (c codec) checkTallies(tx *bolt.Tx) error {
	all, err := c.tableTallies(tx)
	wrong := []error{err}
	for name := range all {
		wrong = append(wrong, c.checkTally(tx, all, name))
	}
	return errors.Join(wrong...)
}
