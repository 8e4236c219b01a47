package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// What the cloud says corrects a floor that some bundle has raised, and a clock that was ahead.
func TestTheCloudCorrectsTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newPod(nil))
		ahead := newBundle()
		ahead.Issued = issued.Add(80 * 24 * time.Hour)
		ahead.Expires = ahead.Issued.Add(time.Hour)
		if _, err := n.Take(sign(t, ahead, newKey('a'))); err != nil {
			t.Fatal(err)
		}
		next := later("v3", 8)
		if _, err := n.Take(sign(t, next, newKey('a'))); err == nil {
			t.Fatal("the time that a key has signed does not count")
		}
		n.floor(issued)
		if _, err := n.Take(sign(t, next, newKey('a'))); err != nil {
			t.Error(err)
		}
	})
}

func TestAKeyThatIsRemovedTakesItsBundlesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newPod(nil)
		n := newNode(t, pod)
		take := func() {
			t.Helper()
			if _, err := n.Take(sign(t, newBundle(), newKey('a'))); err != nil || n.image(pod) != "app:v2" {
				t.Fatal(err, n.image(pod))
			}
		}
		alice := entry(t, newKey('a'), "[shop]", "2000-12-01T00:00:00Z")
		for name, data := range map[string]map[string]string{
			"no ConfigMap":    nil,
			"another key":     {"bob": entry(t, newKey('b'), "[shop]", "2000-12-01T00:00:00Z")},
			"other namespace": {"alice": entry(t, newKey('a'), "[factory]", "2000-12-01T00:00:00Z")},
		} {
			take()
			before := n.changes
			n.setKeys(data)
			for range 2 {
				if n.image(pod) != "" || n.changes == before || len(n.List()) > 0 {
					t.Errorf("%s: %q, %+v", name, n.image(pod), n.List())
				}
				n.restart()
			}
			n.setKeys(map[string]string{"alice": alice})
			for range 2 {
				if n.image(pod) != "" {
					t.Errorf("%s: it is back", name)
				}
				n.restart()
			}
		}
		take()
		n.setKeys(map[string]string{"alicia": alice, "bob": "…"}) // another name is the same key
		if n.image(pod) != "app:v2" || n.List()[0].Key != "alicia" {
			t.Errorf("%+v", n.List())
		}
		time.Sleep(MaxKeysAge + time.Hour)
		if n.image(pod) != "" {
			t.Error("it counts without its key")
		}
	})
}

// The disk may be full for months.
func TestAKeyThatIsRemovedCountsNoLongerWhileNothingCanBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newPod(nil)
		n := newNode(t, pod)
		if _, err := n.Take(sign(t, newBundle(), newKey('a'))); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(n.dir, trustFile)
		if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := n.SetKeys(nil, time.Now()); err == nil || n.image(pod) != "" || len(n.List()) > 0 {
			t.Errorf("%v, and it is offered %q", err, n.image(pod))
		}
	})
}
