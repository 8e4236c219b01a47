package store_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store"
)

// tablePage returns the number and the bytes of the page of a small table.
func tablePage(t *testing.T, dir, name string) (number int, page []byte) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	size := db.Info().PageSize
	if err := db.View(func(tx *bolt.Tx) error {
		number = int(tx.Bucket([]byte("tables")).Bucket([]byte(name)).Root())
		return nil
	}); err != nil || number == 0 {
		t.Fatalf("table %s has no page of its own: %v", name, err)
	}
	return number, readMain(t, dir)[number*size:][:size]
}

// putPage replaces a table's page by an older one, as if the disk had lost a write.
func putPage(t *testing.T, dir, name string, page []byte) {
	t.Helper()
	number, _ := tablePage(t, dir, name)
	binary.NativeEndian.PutUint64(page, uint64(number))
	file := readMain(t, dir)
	copy(file[number*len(page):], page)
	writeMain(t, dir, file)
}

func commitPairs(t *testing.T, s *store.Store, pairs ...store.Pair) {
	t.Helper()
	if err := s.Commit(store.Batch{Pairs: pairs}); err != nil {
		t.Fatal(err)
	}
}

func somePairs(n int) (pairs []store.Pair) {
	for i := range n {
		pairs = append(pairs, store.Pair{Table: "records", Key: fmt.Sprintf("key %02d", i), Value: []byte("a value that takes some room")})
	}
	return pairs
}

func TestAnOlderPageOfATableIsNoticed(t *testing.T) {
	for what, change := range map[string]store.Pair{
		"a record that came":    {Table: "records", Key: "key 99", Value: []byte("v")},
		"a record that went":    {Table: "records", Key: "key 07"},
		"a record that changed": {Table: "records", Key: "key 07", Value: []byte("another value, as long as it")},
	} {
		for kind, opts := range map[string]store.Options{"plain": {}, "encrypted": {Key: make([]byte, 32)}} {
			t.Run(what+"/"+kind, func(t *testing.T) {
				dir := t.TempDir()
				s := mustOpen(t, dir, opts)
				commitPairs(t, s, somePairs(30)...)
				s.Close()
				_, before := tablePage(t, dir, "records")
				s = mustOpen(t, dir, opts)
				commitPairs(t, s, change)
				if err := errors.Join(s.CheckTable("records"), s.Check()); err != nil {
					t.Fatalf("a table that is whole: %v", err)
				}
				s.Close()
				putPage(t, dir, "records", before)

				s = mustOpen(t, dir, opts)
				defer s.Close()
				if err := s.Recovery().Cause; err != nil {
					t.Fatalf("the file was moved aside: %v", err)
				}
				if err := s.CheckTable("records"); !errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrDamaged) {
					t.Fatalf("with an older page: %v", err)
				}
				commitPairs(t, s, store.Pair{Table: "others", Key: "a", Value: []byte("v")})
				if err := s.CheckTable("records"); err == nil {
					t.Error("a change of another table makes this one whole")
				}
				commitPairs(t, s, store.Pair{Table: "records", Key: "a", Value: []byte("v")})
				if err := errors.Join(s.CheckTable("records"), s.Check()); err != nil {
					t.Errorf("after the next change: %v", err)
				}
			})
		}
	}
}

func TestADamagedRecordOfATableIsNoticedUntilItIsDeleted(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	commitPairs(t, s, somePairs(3)...)
	commitPairs(t, s, store.Pair{Table: "records", Key: "x", Value: []byte("the one that is damaged")})
	s.Close()
	flip(t, dir, []byte("the one that is damaged"))
	s = mustOpen(t, dir, store.Options{})
	defer s.Close()
	var damaged *store.Error
	if err := s.CheckTable("records"); !errors.As(err, &damaged) || damaged.Name != "x" {
		t.Fatalf("with a damaged record: %v", err)
	}
	commitPairs(t, s, store.Pair{Table: "records", Key: "x"})
	if err := errors.Join(s.CheckTable("records"), s.Check()); err != nil {
		t.Errorf("after it was deleted: %v", err)
	}
}

func TestTablesWithoutATallyCountAsComplete(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	commitPairs(t, s, somePairs(3)...)
	s.Close()
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Delete([]byte("tables")) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, store.Options{})
	defer s.Close()
	if err := s.CheckTable("records"); err != nil {
		t.Errorf("before it was counted: %v", err)
	}
	commitPairs(t, s, somePairs(5)[2:]...)
	if err := errors.Join(s.CheckTable("records"), s.CheckTable("none"), s.Check()); err != nil {
		t.Errorf("after it was counted: %v", err)
	}
}
