package cache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"
)

// recordsPage returns the number and the bytes of the page that has all records.
func recordsPage(t *testing.T, dir string) (number int, page []byte) {
	t.Helper()
	path := filepath.Join(dir, "cache.db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	size := db.Info().PageSize
	err = db.View(func(tx *bolt.Tx) error {
		number = int(tx.Bucket([]byte("tables")).Bucket([]byte("records")).Root())
		return nil
	})
	file, readErr := os.ReadFile(path)
	if err := errors.Join(err, readErr, db.Close()); err != nil || number == 0 {
		t.Fatalf("the records have no page of their own: %v", err)
	}
	return number, file[number*size:][:size]
}

// putRecordsPage replaces the page of the records by an older one, as if the disk had lost a write.
func putRecordsPage(t *testing.T, dir string, page []byte) {
	t.Helper()
	number, _ := recordsPage(t, dir)
	binary.NativeEndian.PutUint64(page, uint64(number))
	f, err := os.OpenFile(filepath.Join(dir, "cache.db"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(page, int64(number*len(page)))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// damageRecord flips a bit in the record of an object.
func damageRecord(t *testing.T, dir, name string) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	err = db.Update(func(tx *bolt.Tx) error {
		table := tx.Bucket([]byte("tables")).Bucket([]byte("records"))
		return table.ForEach(func(key, value []byte) error {
			if !bytes.Contains(value, []byte(name)) {
				return nil
			}
			damaged++
			value = bytes.Clone(value)
			value[len(value)-1] ^= 1
			return table.Put(key, value)
		})
	})
	if err := errors.Join(err, db.Close()); err != nil || damaged != 1 {
		t.Fatalf("%d records were damaged: %v", damaged, err)
	}
}

// Objects that are gone or refused stay so if the disk loses their records: no object is served
// that a lost record may have been about.
func TestLostRecordsBringBackNoDeletedObject(t *testing.T) {
	forbidden := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	for what, learn := range map[string]func(*testing.T, *upstream, *Cache){
		"a deletion": func(t *testing.T, u *upstream, c *Cache) {
			u.onText("delete", http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"a","kind":"pods","uid":"u-a"}}`)
			ask(t.Context(), t, c, http.MethodDelete, urlPodA)
		},
		"a refusal": func(t *testing.T, u *upstream, c *Cache) {
			u.onText("get", http.StatusForbidden, forbidden)
			get(t, c, urlPodA)
		},
	} {
		for how, lose := range map[string]func(t *testing.T, dir string, before []byte){
			"an older page":    putRecordsPage,
			"a damaged record": func(t *testing.T, dir string, _ []byte) { damageRecord(t, dir, `"ns/a"`) },
		} {
			t.Run(what+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
					c := openCache(t, dir, u)
					stop := runCache(t, c)
					u.onText("get", http.StatusForbidden, forbidden)
					for i := range 12 { // so that the records take a page
						get(t, c, modelURL(fmt.Sprint("refused-", i)))
					}
					u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
					get(t, c, urlPods)
					get(t, c, urlPodA)
					restart := func() {
						stop()
						c = openCache(t, dir, u)
						stop = runCache(t, c)
					}
					stop()
					_, before := recordsPage(t, dir)
					restart()
					learn(t, u, c)
					stop()
					lose(t, dir, before)
					u.goAway()
					for range 2 { // what follows is on disk, too
						restart()
						if got := get(t, c, urlPodA); strings.HasPrefix(got, "a=") || got == "404" {
							t.Fatalf("without the record, the pod is read as %q", got)
						}
						if got, want := get(t, c, urlPods), "100: a=50 b=51"; got != want {
							t.Errorf("the list is %q, want %q", got, want)
						}
					}
					u.comeBack()
					u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
					get(t, c, modelURL("b"))
					u.goAway()
					for range 2 {
						if got := get(t, c, modelURL("b")); got != "b=51" {
							t.Errorf("what was read again is read as %q", got)
						}
						restart()
					}
				})
			})
		}
	}
}

// After the salt was lost, no records remain under keys that cannot be found any more.
func TestRecordsOfAnotherSaltAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
		u.shows("100", podJSON("a", "50"))
		c := openCache(t, dir, u)
		stop := runCache(t, c)
		get(t, c, urlPods)
		u.onText("get", http.StatusForbidden, "{}")
		get(t, c, urlPodA)
		stop()
		db, err := bolt.Open(filepath.Join(dir, "cache.db"), 0o600, &bolt.Options{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("tables")).Bucket([]byte("salts")).Delete([]byte("records"))
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		c = openCache(t, dir, u)
		stop = runCache(t, c)
		u.shows("100", podJSON("a", "50"))
		get(t, c, urlPodA) // it is let in again
		stop()
		u.goAway()
		c = startIn(t, dir, u)
		if got := get(t, c, urlPodA); got != "a=50" {
			t.Errorf("what was let in again is read as %q", got)
		}
	})
}
