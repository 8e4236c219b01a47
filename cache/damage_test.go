package cache

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	bolt "go.etcd.io/bbolt"
)

func valueOf(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// loseObject removes the object whose key has a word in it from a cache file, and
// leaves what says that it is there: so does a page that was lost.
func loseObject(t *testing.T, dir, word string) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	lost := 0
	err = db.Update(func(tx *bolt.Tx) error {
		objects := tx.Bucket([]byte("objects"))
		cursor := objects.Cursor()
		for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
			if strings.Contains(string(key), word) {
				lost++
				return objects.Delete(key)
			}
		}
		return nil
	})
	if err != nil || lost != 1 {
		t.Fatalf("%d objects were lost: %v", lost, err)
	}
}

// What is missing says that the file's pages are damaged: more may be missing. The
// file is moved aside as soon as that is met, and what clients watch is listed again.
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
				runCache(t, c)
				startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
				before, _ := c.disk.now()
				if got := get(t, c, url); !strings.Contains(got, "damaged") {
					t.Errorf("with an object missing: %q", got)
				}
				time.Sleep(firstReopen)
				if after, _ := c.disk.now(); after == before {
					t.Error("the damaged file is still in use")
				}
				if n := valueOf(t, c.metrics.damaged); n != 1 {
					t.Errorf("%v damaged files were counted", n)
				}
				if got, want := get(t, c, url), errNeverRead.Error(); got != want {
					t.Errorf("offline, afterwards: %q, want %q", got, want)
				}
				u.comeBack()
				time.Sleep(2 * sweepEvery)
				u.goAway()
				if got, want := get(t, c, urlPods), "100: a=50 b=51"; got != want {
					t.Errorf("after the cloud was back: %q, want %q", got, want)
				}
			})
		})
	}
}
