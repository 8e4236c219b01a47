package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// Get returns a copy of a table's value for key, or ErrNotFound.
func (s *Store) Get(table, key string) ([]byte, error) {
	var value []byte
	err := s.view(func(tx *bolt.Tx) error {
		var record []byte
		if records := tx.Bucket(bucketTables).Bucket([]byte(table)); records != nil {
			record = records.Get([]byte(key))
		}
		if record == nil {
			return ErrNotFound
		}
		_, payload, err := s.codec.Open(seal.At(seal.KindPair, []byte(table), []byte(key)), record)
		value = append([]byte{}, payload...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read table: %w", &Error{Table: table, Name: key, Err: err})
	}
	return value, nil
}

// rangeChunk is about how many bytes Range reads in one transaction.
const rangeChunk = 256 << 10

// Range calls fn for each key of a table from the given one on, in order; a missing table has
// none. Pairs that are committed meanwhile may be included or not. Range returns an error of
// fn, and for a damaged value an *Error that names its key: delete that, and continue. Unlike
// with views, Range does not notice keys that were lost by damage; CheckTable does.
func (s *Store) Range(table, from string, fn func(key string, value []byte) error) error {
	for next := []byte(from); next != nil; {
		var chunk []Pair
		var damage error
		err := s.view(func(tx *bolt.Tx) error {
			chunk, next, damage = s.codec.chunk(tx, table, next)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read table %s: %w", table, err)
		}
		for _, p := range chunk {
			if err := fn(p.Key, p.Value); err != nil {
				return err
			}
		}
		if damage != nil {
			return fmt.Errorf("read table: %w", damage)
		}
	}
	return nil
}

// chunk returns some pairs, and the key of the next one, or nil.
func (c codec) chunk(tx *bolt.Tx, table string, from []byte) (chunk []Pair, next []byte, damage error) {
	records := tx.Bucket(bucketTables).Bucket([]byte(table))
	if records == nil {
		return nil, nil, nil
	}
	cursor := records.Cursor()
	size := 0
	for key, record := cursor.Seek(from); key != nil; key, record = cursor.Next() {
		if size >= rangeChunk {
			return chunk, bytes.Clone(key), nil
		}
		_, value, err := c.Open(seal.At(seal.KindPair, []byte(table), key), record)
		if err != nil {
			return chunk, nil, &Error{Table: table, Name: string(key), Err: err}
		}
		size += len(key) + len(value)
		chunk = append(chunk, Pair{table, string(key), append([]byte{}, value...)})
	}
	return chunk, nil, nil
}

// CheckTable returns an error that is ErrCorrupt if the table is not as the last Commit left it:
// a record is damaged, missing, or an older one. It is not always known which. The table can
// still be used, and after the next Commit that changes it, its contents count as complete. So
// a caller that must know of losses calls CheckTable first, and writes the consequences in
// that Commit.
func (s *Store) CheckTable(name string) error {
	err := s.view(func(tx *bolt.Tx) error {
		tallies, err := s.codec.tableTallies(tx)
		if err != nil {
			return err
		}
		return s.codec.checkTally(tx, tallies, name)
	})
	if errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrDamaged) {
		s.write.Lock()
		s.doubted[name] = true
		s.write.Unlock()
	}
	if err != nil {
		return fmt.Errorf("check table: %w", err)
	}
	return nil
}

// tableTallies returns a tally for each table: of its keys and the checksums of their records. A
// tally is written in the transaction that changes the table, to another page: if the disk
// loses a write, the page that it reads instead is valid by itself, and only the tally differs.
//
// A table of an early build has none until the table is changed.
func (c codec) tableTallies(tx *bolt.Tx) (map[string]tally, error) {
	all := map[string]tally{}
	if tx.Bucket(bucketMeta).Get(keyTables) == nil {
		return all, nil
	}
	payload, err := c.meta(tx, keyTables)
	if err != nil {
		return nil, err
	}
	r := seal.Fields{Rest: payload}
	for range r.Uint() {
		name := string(r.Bytes())
		all[name] = readTally(&r)
		if r.Err != nil {
			return nil, corrupt(r.Err)
		}
	}
	return all, nil
}

func (c codec) putTableTallies(tx *bolt.Tx, all map[string]tally) error {
	b := binary.AppendUvarint(nil, uint64(len(all)))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b = all[name].append(seal.AppendBytes(b, name))
	}
	return c.putMeta(tx, keyTables, b)
}

// tallyTable computes the tally of a table. The error is that of the first damaged record.
func (c codec) tallyTable(tx *bolt.Tx, name string) (found tally, err error) {
	table := tx.Bucket(bucketTables).Bucket([]byte(name))
	if table == nil {
		return found, nil
	}
	for key, record := range entries(table) {
		found.count(+1, string(key), seal.ChecksumOf(record))
		if damage := seal.CheckSum(seal.At(seal.KindPair, []byte(name), key), record); damage != nil && err == nil {
			err = &Error{Table: name, Name: string(key), Err: damage}
		}
	}
	return found, err
}

// checkTally compares a table with its tally, if it has one.
func (c codec) checkTally(tx *bolt.Tx, all map[string]tally, name string) error {
	found, err := c.tallyTable(tx, name)
	if want, ok := all[name]; err == nil && ok && found != want {
		err = &Error{Table: name, Err: corrupt(fmt.Errorf("it has %d records of %d, or some are older ones", found.n, want.n))}
	}
	return err
}

// tableEdit updates the tallies of the tables that one batch changes.
type tableEdit struct {
	tallies map[string]tally
	changed map[string]bool // changed tables; true if the tally must be computed anew
}

// putPair sets or deletes a key of a table.
func (e *edit) putPair(p *Pair) error {
	table, err := e.tx.Bucket(bucketTables).CreateBucketIfNotExists([]byte(p.Table))
	if err != nil {
		return err
	}
	if e.tables == nil {
		tallies, err := e.tableTallies(e.tx)
		if err != nil {
			return &corruption{fmt.Sprintf("the number of records in tables: %v", err)}
		}
		e.tables = &tableEdit{tallies: tallies, changed: map[string]bool{}}
	}
	key := []byte(p.Key)
	old := table.Get(key)
	if p.Value == nil {
		e.tables.replace(p.Table, key, old, nil)
		return table.Delete(key)
	}
	record := e.Seal(seal.At(seal.KindPair, []byte(p.Table), key), nil, p.Value)
	e.tables.replace(p.Table, key, old, record)
	return table.Put(key, record)
}

// replace updates the tally when a record replaces another one; nil is none.
func (t *tableEdit) replace(name string, key, old, record []byte) {
	if old == nil && record == nil {
		return
	}
	c, ok := t.tallies[name]
	if !ok || old != nil && seal.CheckSum(seal.At(seal.KindPair, []byte(name), key), old) != nil {
		t.changed[name] = true // the old record is damaged: how it was counted is unknown
		return
	}
	if !t.changed[name] {
		t.changed[name] = false
	}
	if old != nil {
		c.count(-1, string(key), seal.ChecksumOf(old))
	}
	if record != nil {
		c.count(+1, string(key), seal.ChecksumOf(record))
	}
	t.tallies[name] = c
}

// putTables writes the tallies of changed tables.
func (e *edit) putTables() error {
	if e.tables == nil || len(e.tables.changed) == 0 {
		return nil
	}
	for name, recount := range e.tables.changed {
		if recount || e.doubted[name] {
			e.tables.tallies[name], _ = e.tallyTable(e.tx, name) // damage is reported when the record is read
			delete(e.doubted, name)                              // if this commit fails, the next start checks again
		}
	}
	return e.putTableTallies(e.tx, e.tables.tallies)
}
