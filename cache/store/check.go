package store

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/pagecheck"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// Check reads all of the store and returns all that is wrong with it: damage,
// and counts of objects that are not what the views add up to. It keeps commits
// waiting; tests call it, and people who look for the cause of something.
func (s *Store) Check() error {
	s.write.Lock() // the pages must not move while they are read
	defer s.write.Unlock()
	if s.closed {
		return ErrClosed
	}
	err := checkPages(s.dir.file(fileMain), true)
	if err == nil {
		err = guarded(func() error {
			return s.db.View(func(tx *bolt.Tx) error { return errors.Join(s.codec.check(tx), s.codec.checkTableCounts(tx)) })
		})
	}
	if err != nil {
		return fmt.Errorf("check cache: %w", err)
	}
	return nil
}

// checkPages looks at the pages of a file that bbolt does not write to: at the inner ones,
// or with full at all. What is wrong with them is ErrDamaged.
func checkPages(path string, full bool) error {
	err := pagecheck.File(path, pagecheck.Options{Full: full, Parents: [][]byte{bucketMembers, bucketTables}})
	var damage *pagecheck.Damage
	if errors.As(err, &damage) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// checkCopy does the same as Check for a file that nobody uses.
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

// check reads every record of a file, and adds up what views hold.
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
		k := m.key(v.Scope)
		held[string(c.HashKey(seal.KindObject, nil, k.bytes()))]++
		object, wrong := c.object(tx, k)
		if wrong == nil && len(object) != m.Size {
			wrong = errSize
		}
		if wrong != nil {
			err = errors.Join(err, ofView(v.ID, m.Name, corrupt(wrong)))
		}
	}
	return err
}

// checkObjects compares what lies in the file with what views hold.
func (c codec) checkObjects(tx *bolt.Tx, held map[string]int) error {
	rc := &refcount{codec: c, objects: tx.Bucket(bucketObjects), refs: tx.Bucket(bucketRefs), unreferenced: tx.Bucket(bucketUnreferenced)}
	var wrong []error
	for key, record := range entries(rc.objects) {
		if err := c.checkObject(key, record); err != nil {
			wrong = append(wrong, &Error{Name: c.shownObject(key), Err: err})
		}
		n, err := rc.count(key)
		if err == nil && n != held[string(key)] {
			err = corrupt(fmt.Errorf("%d views hold it, and %d are counted", held[string(key)], n))
		}
		if err != nil {
			wrong = append(wrong, &Error{Name: c.shownObject(key), Err: err})
		}
	}
	for key := range entries(rc.refs) {
		if held[string(key)] < 2 {
			wrong = append(wrong, &Error{Name: c.shownObject(key), Err: corrupt(errors.New("counted, and held by one view or none"))})
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
			wrong = append(wrong, &Error{Table: string(name), Err: corrupt(errors.New("it is no table"))})
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
