package table_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/table"
)

// disk is a store that commits at once, and can be made to fail.
type disk struct {
	*store.Store
	damaged         map[[2]string]bool // tables and keys
	fails, putFails error
}

func newDisk(tb testing.TB) *disk {
	tb.Helper()
	s, err := store.Open(tb.TempDir(), store.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return &disk{Store: s, damaged: map[[2]string]bool{}}
}

func (d *disk) Get(table, key string) ([]byte, error) {
	switch {
	case d.fails != nil:
		return nil, d.fails
	case d.damaged[[2]string{table, key}]:
		return nil, &store.Error{Table: table, Name: key, Err: store.ErrCorrupt}
	}
	return d.Store.Get(table, key)
}

func (d *disk) Put(pairs ...store.Pair) error {
	if err := cmp.Or(d.fails, d.putFails); err != nil {
		return err
	}
	for _, p := range pairs {
		delete(d.damaged, [2]string{p.Table, p.Key})
	}
	return d.Commit(store.Batch{Pairs: pairs})
}

// keys returns the keys of a table.
func (d *disk) keys(tb testing.TB, table string) []string {
	tb.Helper()
	keys, err := d.Keys(table)
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

// damage makes a value one that cannot be read.
func (d *disk) damage(table, key string) { d.damaged[[2]string{table, key}] = true }

// clear makes all tables empty, as where the file was damaged and replaced.
func (d *disk) clear(tb testing.TB) {
	tb.Helper()
	for _, table := range []string{"salts", "x"} {
		for _, key := range d.keys(tb, table) {
			if err := d.Put(store.Pair{Table: table, Key: key}); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

func open(tb testing.TB, t table.Store, name string) *table.Table {
	tb.Helper()
	b, err := table.Open(t, name, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestKeys(t *testing.T) {
	d := newDisk(t)
	b := open(t, d, "x")
	key := b.Key("ab", "c")
	for name, different := range map[string]string{
		"parts cut elsewhere": b.Key("a", "bc"),
		"one part":            b.Key("abc"),
		"an empty part":       b.Key("ab", "c", ""),
		"another table":       open(t, d, "y").Key("ab", "c"),
		"another disk":        open(t, newDisk(t), "x").Key("ab", "c"),
	} {
		if different == key {
			t.Errorf("%s: the same key", name)
		}
	}
	if again := open(t, d, "x").Key("ab", "c"); again != key {
		t.Error("another key after a restart")
	}
	d.damage("salts", "x")
	if again := open(t, d, "x"); again.Key("ab", "c") == key || again.Key("ab", "c") != open(t, d, "x").Key("ab", "c") {
		t.Error("a damaged salt was not replaced by one that stays")
	}
}

func TestDamagedValuesAreForgottenAndStopNobody(t *testing.T) {
	d := newDisk(t)
	b := open(t, d, "x")
	for i := range 5 {
		b.Put(fmt.Sprint(i), []byte{byte(i)})
	}
	for _, key := range []string{"0", "2", "4"} {
		d.damage("x", key)
	}
	read := func() (got []string) {
		t.Helper()
		if err := b.All(func(key string, _ []byte) { got = append(got, key) }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := []string{"1", "3"}
	d.putFails = store.ErrNoSpace
	if got := read(); !slices.Equal(got, want) {
		t.Errorf("on a disk that cannot be written: read %v, want %v", got, want)
	}
	d.putFails = nil
	if got := read(); !slices.Equal(got, want) || !slices.Equal(d.keys(t, "x"), want) {
		t.Errorf("read %v, left %v; want %v", got, d.keys(t, "x"), want)
	}
	d.damage("x", "1")
	if _, ok := b.Get("1"); ok || slices.Contains(d.keys(t, "x"), "1") {
		t.Error("a damaged value was read, or is still there")
	}
	b.Delete("3")
	b.Delete()
	if _, ok := b.Get("3"); ok {
		t.Error("there after Delete")
	}
}

func TestWhatIsWrittenAfterTheFileWasReplacedIsFoundAfterARestart(t *testing.T) {
	d := newDisk(t)
	b := open(t, d, "x")
	d.clear(t)
	b.Put(b.Key("a"), []byte("v"))
	b = open(t, d, "x")
	if _, ok := b.Get(b.Key("a")); !ok {
		t.Error("not found")
	}
}

func TestADiskThatFails(t *testing.T) {
	d := newDisk(t)
	b := open(t, d, "x")
	d.fails = store.ErrNoSpace
	b.Put("a", []byte("v"))
	if _, ok := b.Get("a"); ok {
		t.Error("read from a disk that fails")
	}
	if err := b.All(func(string, []byte) {}); err != nil {
		t.Error("an empty table:", err)
	}
	if _, err := table.Open(d, "y", nil); !errors.Is(err, store.ErrNoSpace) {
		t.Error(err)
	}
	d.fails = nil
	b.Put("a", []byte("v"))
	d.fails = store.ErrNoSpace
	if err := b.All(func(string, []byte) {}); !errors.Is(err, store.ErrNoSpace) {
		t.Error(err)
	}
}
