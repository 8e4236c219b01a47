package store_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/edgehub-io/edgehub/cache/store"
)

// In these tests, the version of a view determines its members. So a state that is found after a
// crash can be checked without knowing what was committed.

const (
	testScope = "v1/pods protobuf"
	testNames = 40
	// testViews hold the same objects, so that they are shared.
	testViews = 3
)

func viewID(view int) store.ID { return sha256.Sum256([]byte{byte(view)}) }

func objectName(i int) string { return fmt.Sprintf("default/pod-%02d", i) }

func objectBytes(name string, version int) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s@%d", name, version))
	return bytes.Repeat(sum[:], 1+int(sum[0])%128)
}

// changesAt returns what version v changes about object i.
func changesAt(i, v int) (put, gone bool) {
	h := sha256.Sum256(fmt.Appendf(nil, "%d %d", i, v))
	return h[0] < 40, h[0] >= 240
}

// knownMembers caches the results of membersAt.
var knownMembers sync.Map

// membersAt returns the members of every view at a version: name → version.
func membersAt(version int) map[string]int {
	if m, ok := knownMembers.Load(version); ok {
		return m.(map[string]int)
	}
	m := map[string]int{}
	for i := range testNames {
		for v := version; v > 0; v-- {
			put, gone := changesAt(i, v)
			if put {
				m[objectName(i)] = v
			}
			if put || gone {
				break
			}
		}
	}
	knownMembers.Store(version, m)
	return m
}

func testHeader(version int) store.Header {
	return store.Header{Key: []byte("key"), Scope: testScope, ResourceVersion: strconv.Itoa(version), Complete: true}
}

// whole returns a change that replaces the view by its state at a version.
func whole(view, version int) store.Change {
	c := store.Change{ID: viewID(view), Op: store.Replace, Header: testHeader(version)}
	for name, v := range membersAt(version) {
		c.Put = append(c.Put, store.NewObject(name, strconv.Itoa(v), objectBytes(name, v)))
	}
	return c
}

// step returns a change from one version to the next.
func step(view, from int) store.Change {
	v := from + 1
	c := store.Change{ID: viewID(view), From: strconv.Itoa(from), Header: testHeader(v)}
	for i := range testNames {
		name := objectName(i)
		switch put, gone := changesAt(i, v); {
		case put:
			c.Put = append(c.Put, store.NewObject(name, strconv.Itoa(v), objectBytes(name, v)))
		case gone:
			c.Delete = append(c.Delete, name)
		}
	}
	return c
}

// verify returns a view's version. Its error is the store's, or errWrong if the view does not have
// the state of its version.
func verify(s *store.Store, view int) (version int, err error) {
	got := map[string]int{}
	err = streamObjects(s, viewID(view), func(v store.View) error {
		version, err = strconv.Atoi(v.ResourceVersion)
		return err
	}, func(o store.Object) error {
		v, err := strconv.Atoi(o.ResourceVersion)
		if err != nil || !bytes.Equal(o.Bytes, objectBytes(o.Name, v)) {
			return fmt.Errorf("%w: object %s@%s", errWrong, o.Name, o.ResourceVersion)
		}
		got[o.Name] = v
		return nil
	})
	if err == nil && !maps.Equal(got, membersAt(version)) {
		err = fmt.Errorf("%w: view %d at %d has %v", errWrong, view, version, got)
	}
	return version, err
}

var errWrong = errors.New("wrong data")

func mustOpen(t testing.TB, dir string, opts store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { s.Close() }) })
	return s
}

func mustCommit(t testing.TB, s *store.Store, changes ...store.Change) {
	t.Helper()
	if err := s.Commit(store.Batch{Changes: changes}); err != nil {
		t.Fatal(err)
	}
}

// mustHold checks that all views are at version.
func mustHold(t testing.TB, s *store.Store, version int) {
	t.Helper()
	for view := range testViews {
		if got, err := verify(s, view); err != nil || got != version {
			t.Fatalf("view %d is at version %d, want %d (%v)", view, got, version, err)
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// fill commits all views at from, and steps up to version to.
func fill(t testing.TB, s *store.Store, from, to int) {
	t.Helper()
	for view := range testViews {
		mustCommit(t, s, whole(view, from))
	}
	for v := from; v < to; v++ {
		for view := range testViews {
			mustCommit(t, s, step(view, v))
		}
	}
}

func copyFolder(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func readMain(t testing.TB, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "cache.log"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeMain(t testing.TB, dir string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cache.log"), b, 0o600); err != nil {
		t.Fatal(err)
	}
}
