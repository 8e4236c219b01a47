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

// rangeChunk is how many bytes Range reads in one transaction, about.
const rangeChunk = 256 << 10

// Range calls fn for each key of a table from the given one on, in order; a
// table that is not there has none. What is committed meanwhile may be seen or
// not. A damaged value ends it with an *Error that names its key: delete that,
// and go on. So does an error of fn. Unlike with views, a key that damage has
// removed is not noticed here: CheckTable does.
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

// chunk returns some pairs, and the key of the next one, nil if there is none.
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

func (e *edit) pair(p *Pair) error {
	table, err := e.tx.Bucket(bucketTables).CreateBucketIfNotExists([]byte(p.Table))
	if err != nil {
		return err
	}
	tables, err := e.tableEdit()
	if err != nil {
		return err
	}
	key := []byte(p.Key)
	old := table.Get(key)
	if p.Value == nil {
		tables.replace(p.Table, key, old, nil)
		return table.Delete(key)
	}
	record := e.Seal(seal.At(seal.KindPair, []byte(p.Table), key), nil, p.Value)
	tables.replace(p.Table, key, old, record)
	return table.Put(key, record)
}

// tableCount is what the records of a table add up to: how many there are, and a digest of
// their keys and checksums. It is written in the transaction that changes the table, to
// another page: a page that the disk did not write, so that what was there before is
// read instead, is whole in itself, and shows only in that the two disagree.
type tableCount struct {
	records int
	digest  digest
}

func (c *tableCount) add(key, record []byte) {
	c.records++
	c.digest.add(string(key), seal.ChecksumOf(record))
}

func (c *tableCount) remove(key, record []byte) {
	c.records--
	c.digest.remove(string(key), seal.ChecksumOf(record))
}

// keyTables is where the counts of all tables are. A file of an earlier release has
// none: a table gets its own when it is next written to.
var keyTables = []byte("tables")

func (c codec) tableCounts(tx *bolt.Tx) (map[string]tableCount, error) {
	all := map[string]tableCount{}
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
		all[name] = tableCount{records: int(r.Uint()), digest: digest(r.Uint())}
		if r.Err != nil {
			return nil, corrupt(r.Err)
		}
	}
	return all, nil
}

func (c codec) putTableCounts(tx *bolt.Tx, all map[string]tableCount) error {
	b := binary.AppendUvarint(nil, uint64(len(all)))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b = seal.AppendBytes(b, []byte(name))
		b = binary.AppendUvarint(b, uint64(all[name].records))
		b = binary.AppendUvarint(b, uint64(all[name].digest))
	}
	return c.putMeta(tx, keyTables, b)
}

// countTable counts the records of a table. The error is of the first record that is damaged.
func (c codec) countTable(tx *bolt.Tx, name string) (found tableCount, err error) {
	table := tx.Bucket(bucketTables).Bucket([]byte(name))
	if table == nil {
		return found, nil
	}
	for key, record := range entries(table) {
		found.add(key, record)
		if damage := seal.CheckSum(seal.At(seal.KindPair, []byte(name), key), record); damage != nil && err == nil {
			err = &Error{Table: name, Name: string(key), Err: damage}
		}
	}
	return found, err
}

// tableEdit brings the counts up to date with what one batch does to tables.
type tableEdit struct {
	known   map[string]tableCount
	recount map[string]bool // their counts are not known
	touched map[string]bool
}

func (e *edit) tableEdit() (*tableEdit, error) {
	if e.tables != nil {
		return e.tables, nil
	}
	known, err := e.tableCounts(e.tx)
	if err != nil {
		return nil, &corruption{fmt.Sprintf("the number of records in tables: %v", err)}
	}
	e.tables = &tableEdit{known: known, recount: map[string]bool{}, touched: map[string]bool{}}
	return e.tables, nil
}

// replace notes that a record takes the place of another; nil is none.
func (t *tableEdit) replace(name string, key, old, record []byte) {
	if old == nil && record == nil {
		return
	}
	c, known := t.known[name]
	t.touched[name] = true
	if !known || old != nil && seal.CheckSum(seal.At(seal.KindPair, []byte(name), key), old) != nil {
		t.recount[name] = true // what it was counted as is not known
		return
	}
	if old != nil {
		c.remove(key, old)
	}
	if record != nil {
		c.add(key, record)
	}
	t.known[name] = c
}

// putTouchedCounts writes the counts of tables that the batch has changed.
func (e *edit) putTouchedCounts() error {
	if e.tables == nil || len(e.tables.touched) == 0 {
		return nil
	}
	t := e.tables
	for name := range e.doubted {
		if t.touched[name] {
			t.recount[name] = true
			delete(e.doubted, name) // should this commit fail, the next start finds out again
		}
	}
	for name := range t.recount {
		t.known[name], _ = e.countTable(e.tx, name) // damage is reported when the record is read
	}
	return e.putTableCounts(e.tx, t.known)
}

// checkTableCounts compares all tables with their counts.
func (c codec) checkTableCounts(tx *bolt.Tx) error {
	all, err := c.tableCounts(tx)
	wrong := []error{err}
	for name := range all {
		wrong = append(wrong, c.checkTableCount(tx, all, name))
	}
	return errors.Join(wrong...)
}

// checkTableCount compares a table with its count, if it has one.
func (c codec) checkTableCount(tx *bolt.Tx, all map[string]tableCount, name string) error {
	found, err := c.countTable(tx, name)
	if want, known := all[name]; err == nil && known && found != want {
		err = &Error{Table: name, Err: corrupt(fmt.Errorf("it has %d records of %d, or some are older ones", found.records, want.records))}
	}
	return err
}

// CheckTable returns an error that is ErrCorrupt if a table is not what the last Commit
// left: a record is damaged, has gone, or is one of before. Which one is not always
// known. The table can be used all the same, and from the next Commit that changes it on,
// what is in it counts as all of it: whoever needs to know of a loss calls CheckTable
// first, and writes down in that Commit what follows from it.
func (s *Store) CheckTable(name string) error {
	err := s.view(func(tx *bolt.Tx) error {
		all, err := s.codec.tableCounts(tx)
		if err != nil {
			return err
		}
		return s.codec.checkTableCount(tx, all, name)
	})
	if errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrDamaged) {
		s.doubtTable(name)
	}
	if err != nil {
		return fmt.Errorf("check table: %w", err)
	}
	return nil
}

// doubtTable has a table counted anew when it is next changed.
func (s *Store) doubtTable(name string) {
	s.write.Lock()
	defer s.write.Unlock()
	s.doubted[name] = true
}
