package table_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/table"
	"github.com/edgehub-io/edgehub/cache/table/tabletest"
)

func open(tb testing.TB, t table.Store, name string) *table.Table {
	tb.Helper()
	b, err := table.Open(t, name, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestKeys(t *testing.T) {
	var disk, other tabletest.Store
	b := open(t, &disk, "x")
	key := b.Key("ab", "c")
	for name, different := range map[string]string{
		"parts cut elsewhere": b.Key("a", "bc"),
		"one part":            b.Key("abc"),
		"an empty part":       b.Key("ab", "c", ""),
		"another table":       open(t, &disk, "y").Key("ab", "c"),
		"another disk":        open(t, &other, "x").Key("ab", "c"),
	} {
		if different == key {
			t.Errorf("%s: the same key", name)
		}
	}
	if again := open(t, &disk, "x").Key("ab", "c"); again != key {
		t.Error("another key after a restart")
	}
	disk.Damage("salts", "x")
	if again := open(t, &disk, "x"); again.Key("ab", "c") == key || again.Key("ab", "c") != open(t, &disk, "x").Key("ab", "c") {
		t.Error("a damaged salt was not replaced by one that stays")
	}
}

func TestDamagedValuesAreForgottenAndStopNobody(t *testing.T) {
	var disk tabletest.Store
	b := open(t, &disk, "x")
	for i := range 5 {
		b.Put(fmt.Sprint(i), []byte{byte(i)})
	}
	for _, key := range []string{"0", "2", "4"} {
		disk.Damage("x", key)
	}
	var got []string
	if err := b.All(func(key string, _ []byte) { got = append(got, key) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1", "3"}; !slices.Equal(got, want) || !slices.Equal(disk.KeysIn("x"), want) {
		t.Errorf("read %v, left %v; want %v", got, disk.KeysIn("x"), want)
	}
	disk.Damage("x", "1")
	if _, ok := b.Get("1"); ok || slices.Contains(disk.KeysIn("x"), "1") {
		t.Error("a damaged value was read, or is still there")
	}
	b.Delete("3")
	b.Delete()
	if _, ok := b.Get("3"); ok {
		t.Error("there after Delete")
	}
}

func TestWhatIsWrittenAfterTheFileWasReplacedIsFoundAfterARestart(t *testing.T) {
	var disk tabletest.Store
	b := open(t, &disk, "x")
	disk.Clear()
	b.Put(b.Key("a"), []byte("v"))
	b = open(t, &disk, "x")
	if _, ok := b.Get(b.Key("a")); !ok {
		t.Error("not found")
	}
}

func TestDamagedValuesOnADiskThatCannotBeWritten(t *testing.T) {
	var disk tabletest.Store
	b := open(t, &disk, "x")
	b.Put("1", []byte("v"))
	b.Put("2", []byte("v"))
	disk.Damage("x", "1")
	disk.FailPuts(store.ErrNoSpace)
	var got []string
	if err := b.All(func(key string, _ []byte) { got = append(got, key) }); err != nil || !slices.Equal(got, []string{"2"}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestADiskThatFails(t *testing.T) {
	var disk tabletest.Store
	b := open(t, &disk, "x")
	disk.Fail(store.ErrNoSpace)
	b.Put("a", []byte("v"))
	if _, ok := b.Get("a"); ok {
		t.Error("read from a disk that fails")
	}
	if err := b.All(func(string, []byte) {}); err != nil {
		t.Error("an empty table:", err)
	}
	if _, err := table.Open(&disk, "y", nil); !errors.Is(err, store.ErrNoSpace) {
		t.Error(err)
	}
	disk.Fail(nil)
	b.Put("a", []byte("v"))
	disk.Fail(store.ErrNoSpace)
	if err := b.All(func(string, []byte) {}); !errors.Is(err, store.ErrNoSpace) {
		t.Error(err)
	}
}
