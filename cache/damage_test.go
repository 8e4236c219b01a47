package cache

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/view"
)

func valueOf(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// loseObject removes the object whose key contains a word from a cache file, but not the
// references to it, as if a page were lost.
func loseObject(t *testing.T, dir, word string) {
	t.Helper()
	lose(t, dir, word, func(tx *bolt.Tx, each func(*bolt.Bucket)) { each(tx.Bucket([]byte("objects"))) })
}

// loseMembers removes the members whose names contain a word from all views of a cache file.
func loseMembers(t *testing.T, dir, word string) {
	t.Helper()
	lose(t, dir, word, func(tx *bolt.Tx, each func(*bolt.Bucket)) {
		views := tx.Bucket([]byte("members"))
		_ = views.ForEachBucket(func(id []byte) error { each(views.Bucket(id)); return nil })
	})
}

// lose removes the first key that contains a word from each of the buckets of a cache file.
func lose(t *testing.T, dir, word string, buckets func(tx *bolt.Tx, each func(*bolt.Bucket))) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	lost := 0
	err = db.Update(func(tx *bolt.Tx) (err error) {
		buckets(tx, func(bucket *bolt.Bucket) {
			cursor := bucket.Cursor()
			for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
				if strings.Contains(string(key), word) {
					lost++
					err = errors.Join(err, bucket.Delete(key))
					return
				}
			}
		})
		return err
	})
	if err != nil || lost == 0 {
		t.Fatalf("%d keys were lost: %v", lost, err)
	}
}

// A missing object shows that pages of the file are damaged, so more may be missing. The file is
// moved aside as soon as this is found, and watched views are listed again.
func TestAMissingObjectIsDamage(t *testing.T) {
	for name, url := range map[string]string{"met by a list": urlPods, "met by a GET": "/api/v1/namespaces/ns/pods/b"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
				u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
				c := openCache(t, dir, u)
				stop := runCache(t, c)
				get(t, c, urlPods)
				stop()
				loseObject(t, dir, "ns/b")

				u.goAway()
				c = openCache(t, dir, u)
				w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
				before, _ := c.disk.Now()
				if got := get(t, c, url); !strings.Contains(got, "damaged") {
					t.Errorf("with an object missing: %q", got)
				}
				runCache(t, c) // only now: at the loss of the cloud the hub reads the pods, too
				time.Sleep(disk.FirstReopen)
				if after, _ := c.disk.Now(); after == before {
					t.Error("the damaged file is still in use")
				}
				if n := valueOf(t, c.metrics.damaged); n != 1 {
					t.Errorf("%v damaged files were counted", n)
				}
				expect(t, c, "offline, afterwards", url, view.ErrNeverRead.Error())
				u.comeBack()
				time.Sleep(2 * records.SweepEvery)
				u.goAway()
				expect(t, c, "after the cloud was back", urlPods, "100: a=50 b=51")
				w.stop() // before the cache ends, which looks for what is held
				<-w.done
			})
		})
	}
}

// The hub starts whichever page of its file is damaged, whether views or tables are read first:
// the file is moved aside.
func TestAHubStartsWhateverPageIsDamaged(t *testing.T) {
	u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
	u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
	c := openCache(t, dir, u)
	stop := runCache(t, c)
	get(t, c, urlPods)
	ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods)
	for n := range 300 { // records, on several pages
		c.records.Gone(query.UserResource{User: query.NodeUser, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}, fmt.Sprintf("ns/gone-%d", n), "100", "u", true)
	}
	u.goAway()
	reportStatus(t, c, "a", "10.0.0.1")
	stop()
	file := filepath.Join(dir, "cache.db")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for n := 0; n+page <= len(whole); n += page {
		if len(bytes.Trim(whole[n:n+page], "\x00")) == 0 {
			continue // it is not used
		}
		spoiled := bytes.Clone(whole)
		clear(spoiled[n : n+page])
		if err := os.WriteFile(file, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Open(dir, u, testOptions(t))
		if err != nil {
			t.Errorf("page %d: %v", n/page, err)
			continue
		}
		if err := c.Close(); err != nil {
			t.Errorf("page %d: close: %v", n/page, err)
		}
	}
}

// Invariant 15: where an object's bytes or its place in a list are damaged, what needs them is
// refused until it is read again, and nothing is short. The rest is served.
func TestADamagedRecordIsRefusedUntilItIsReadAgain(t *testing.T) {
	const urlOfA = urlPods + "?fieldSelector=metadata.name%3Da"
	for name, bucket := range map[string]string{"the object": "objects", "its membership": "members"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
				u.on("list", func(r *http.Request) *http.Response {
					if r.URL.Query().Has("fieldSelector") {
						return respond(http.StatusOK, podsJSON("100", podJSON("a", "50")))
					}
					return respond(http.StatusOK, podsJSON("100", podJSON("a", "50"), podJSON("b", "51")))
				})
				c := openCache(t, dir, u)
				stop := runCache(t, c)
				get(t, c, urlPods)
				get(t, c, urlOfA)
				stop()
				flipRecord(t, dir, bucket, "ns/b")
				u.goAway()
				c = startIn(t, dir, u)
				for _, url := range []string{urlPods, urlPodB} {
					if got := get(t, c, url); strings.Contains(got, "=") || got == "404" {
						t.Errorf("offline, %s is %q", url, got)
					}
				}
				if body, err := readBody(t.Context(), t, c, urlInitial+"&timeoutSeconds=1"); err == nil && bytes.Contains(body, []byte("initial-events-end")) {
					t.Errorf("initial events are said to be whole: %s", body)
				}
				expect(t, c, "offline, a list without it", urlOfA, "100: a=50")
				u.comeBack()
				get(t, c, urlPods)
				u.goAway()
				expect(t, c, "read again", urlPods, "100: a=50 b=51")
			})
		})
	}
}

// flipRecord flips a bit in the records whose key contains a word.
func flipRecord(t *testing.T, dir, bucket, word string) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	flipped := 0
	var flip func(b *bolt.Bucket) error
	flip = func(b *bolt.Bucket) error {
		return b.ForEach(func(key, value []byte) error {
			if value == nil {
				return flip(b.Bucket(key))
			}
			if !strings.Contains(string(key), word) {
				return nil
			}
			flipped++
			value = bytes.Clone(value)
			value[len(value)-1] ^= 1
			return b.Put(key, value)
		})
	}
	if err := db.Update(func(tx *bolt.Tx) error { return flip(tx.Bucket([]byte(bucket))) }); err != nil || flipped == 0 {
		t.Fatalf("%d records were damaged: %v", flipped, err)
	}
}
