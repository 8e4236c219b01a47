package bucket_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/cache/bucket"
	"github.com/edgehub-io/edgehub/cache/bucket/buckettest"
	"github.com/edgehub-io/edgehub/cache/store"
)

func open(tb testing.TB, t bucket.Table, name string) *bucket.Bucket {
	tb.Helper()
	b, err := bucket.Open(t, name, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestKeys(t *testing.T) {
	var table, other buckettest.Table
	b := open(t, &table, "x")
	key := b.Key("ab", "c")
	for name, different := range map[string]string{
		"parts cut elsewhere": b.Key("a", "bc"),
		"one part":            b.Key("abc"),
		"an empty part":       b.Key("ab", "c", ""),
		"another bucket":      open(t, &table, "y").Key("ab", "c"),
		"another disk":        open(t, &other, "x").Key("ab", "c"),
	} {
		if different == key {
			t.Errorf("%s: the same key", name)
		}
	}
	if again := open(t, &table, "x").Key("ab", "c"); again != key {
		t.Error("another key after a restart")
	}
	table.Damage("salts", "x")
	if again := open(t, &table, "x"); again.Key("ab", "c") == key || again.Key("ab", "c") != open(t, &table, "x").Key("ab", "c") {
		t.Error("a damaged salt was not replaced by one that stays")
	}
}

func TestDamagedValuesAreForgottenAndStopNobody(t *testing.T) {
	var table buckettest.Table
	b := open(t, &table, "x")
	for i := range 5 {
		b.Put(fmt.Sprint(i), []byte{byte(i)})
	}
	for _, key := range []string{"0", "2", "4"} {
		table.Damage("x", key)
	}
	var got []string
	if err := b.All(func(key string, _ []byte) { got = append(got, key) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1", "3"}; !slices.Equal(got, want) || !slices.Equal(table.Keys("x"), want) {
		t.Errorf("read %v, left %v; want %v", got, table.Keys("x"), want)
	}
	table.Damage("x", "1")
	if _, ok := b.Get("1"); ok || slices.Contains(table.Keys("x"), "1") {
		t.Error("a damaged value was read, or is still there")
	}
	b.Delete("3")
	b.Delete()
	if _, ok := b.Get("3"); ok {
		t.Error("there after Delete")
	}
}

func TestWhatIsWrittenAfterTheFileWasReplacedIsFoundAfterARestart(t *testing.T) {
	var table buckettest.Table
	b := open(t, &table, "x")
	table.Clear()
	b.Put(b.Key("a"), []byte("v"))
	b = open(t, &table, "x")
	if _, ok := b.Get(b.Key("a")); !ok {
		t.Error("not found")
	}
}

func TestDamagedValuesOnADiskThatCannotBeWritten(t *testing.T) {
	var table buckettest.Table
	b := open(t, &table, "x")
	b.Put("1", []byte("v"))
	b.Put("2", []byte("v"))
	table.Damage("x", "1")
	table.FailPuts(store.ErrNoSpace)
	var got []string
	if err := b.All(func(key string, _ []byte) { got = append(got, key) }); err != nil || !slices.Equal(got, []string{"2"}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestADiskThatFails(t *testing.T) {
	var table buckettest.Table
	b := open(t, &table, "x")
	table.Fail(store.ErrDamaged)
	b.Put("a", []byte("v"))
	if _, ok := b.Get("a"); ok {
		t.Error("read from a disk that fails")
	}
	if err := b.All(func(string, []byte) {}); err != nil {
		t.Error("an empty table:", err)
	}
	if _, err := bucket.Open(&table, "y", nil); !errors.Is(err, store.ErrDamaged) {
		t.Error(err)
	}
	table.Fail(nil)
	b.Put("a", []byte("v"))
	table.Fail(store.ErrDamaged)
	if err := b.All(func(string, []byte) {}); !errors.Is(err, store.ErrDamaged) {
		t.Error(err)
	}
}
