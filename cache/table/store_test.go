package table_test

import (
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/table"
)

// onDisk is a Table that commits at once.
type onDisk struct{ *store.Store }

func (d onDisk) Put(pairs ...store.Pair) error { return d.Commit(store.Batch{Pairs: pairs}) }

func TestOnARealStore(t *testing.T) {
	dir := t.TempDir()
	key := ""
	for round := range 2 {
		s, err := store.Open(dir, store.Options{Key: slices.Repeat([]byte{7}, 32)})
		if err != nil {
			t.Fatal(err)
		}
		b := open(t, onDisk{s}, "x")
		if round == 0 {
			key = b.Key("a name")
			b.Put(key, []byte("a value"))
			b.Put(b.Key("another"), []byte("v"))
			b.Delete(b.Key("another"))
		}
		if got, ok := b.Get(b.Key("a name")); !ok || string(got) != "a value" {
			t.Errorf("%q, %v", got, ok)
		}
		var keys []string
		if err := b.All(func(key string, _ []byte) { keys = append(keys, key) }); err != nil || !slices.Equal(keys, []string{key}) {
			t.Errorf("%v, %v", keys, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, ok := b.Get(key); ok {
			t.Error("read from a store that is closed")
		}
	}
}

var _ table.Store = onDisk{}
