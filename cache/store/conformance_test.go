package store_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cache/store"
)

// TestConformance has what changes a store refuses, and what it keeps of objects that several views have. That what was
// committed is read, also after another open, is in the tests with the versions of model_test.go.
func TestConformance(t *testing.T) {
	for name, opts := range map[string]store.Options{
		"plain":     {},
		"encrypted": {Key: []byte("0123456789abcdef0123456789abcdef")},
	} {
		t.Run(name, func(t *testing.T) { conform(t, opts) })
	}
}

func conform(t *testing.T, opts store.Options) {
	for _, tt := range []struct {
		name string
		run  func(*suite)
	}{
		{"an update from another version is refused, and nothing else is done", (*suite).conflict},
		{"a stale view keeps its members and refuses updates", (*suite).stale},
		{"an object is stored once for all views and goes with the last", (*suite).shared},
		{"an object moves between views within a commit", (*suite).moves},
		{"bytes that are not given are those with the same sum", (*suite).notGiven},
		{"invalid changes are refused", (*suite).invalid},
		{"after Close all is ErrClosed", (*suite).closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &suite{T: t, opts: opts, dir: t.TempDir()}
			s.open()
			t.Cleanup(func() {
				if !t.Failed() && !s.isClosed {
					s.ok(s.Check())
				}
				s.ok(s.Close())
			})
			tt.run(s)
		})
	}
}

// suite is one test and its store.
type suite struct {
	*testing.T
	*store.Store
	opts     store.Options
	dir      string
	isClosed bool
}

func (s *suite) open() {
	s.Helper()
	var err error
	s.Store, err = store.Open(s.dir, s.opts)
	s.ok(err)
	if r := s.Recovery(); r.Cause != nil {
		s.Fatalf("a whole file was taken for a damaged one: %v", r.Cause)
	}
}

func (s *suite) reopen() {
	s.Helper()
	s.ok(s.Check())
	s.ok(s.Close())
	s.open()
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) wantErr(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("got error %v, want %v", err, want)
	}
}

// id returns the ID of a view with this name.
func id(name string) store.ID { return sha256.Sum256([]byte(name)) }

func header(version string) store.Header {
	h := testHeader(0)
	h.ResourceVersion = version
	return h
}

// content returns bytes for an object, which depend on its name and version and have a few sizes.
func content(name, version string) []byte {
	sum := sha256.Sum256([]byte(name + "@" + version))
	return bytes.Repeat(sum[:], 1+int(sum[0])*2)
}

// objects returns objects from name, version, name, version, …
func objects(pairs ...string) []store.Object {
	var list []store.Object
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, store.NewObject(pairs[i], pairs[i+1], content(pairs[i], pairs[i+1])))
	}
	return list
}

func replacement(view, version string, put ...store.Object) store.Change {
	return store.Change{ID: id(view), Op: store.Replace, Header: header(version), Put: put}
}

func update(view, from, to string, put ...store.Object) store.Change {
	return store.Change{ID: id(view), Op: store.Update, From: from, Header: header(to), Put: put}
}

func (s *suite) commit(changes ...store.Change) {
	s.Helper()
	s.ok(s.Commit(store.Batch{Changes: changes}))
}

func (s *suite) refuse(want error, changes ...store.Change) {
	s.Helper()
	s.wantErr(s.Commit(store.Batch{Changes: changes}), want)
}

// has checks a view's version and members.
func (s *suite) has(view, version string, pairs ...string) {
	s.Helper()
	var want, got []string
	for i := 0; i < len(pairs); i += 2 {
		want = append(want, pairs[i]+"@"+pairs[i+1])
	}
	s.ok(streamObjects(s.Store, id(view), func(v store.View) error {
		if v.ResourceVersion != version || v.Members != len(want) {
			return fmt.Errorf("view %s is at %s with %d members; want %s with %v", view, v.ResourceVersion, v.Members, version, want)
		}
		return nil
	}, func(o store.Object) error {
		got = append(got, o.Name+"@"+o.ResourceVersion)
		if !bytes.Equal(o.Bytes, content(o.Name, o.ResourceVersion)) {
			return fmt.Errorf("object %s@%s has other bytes", o.Name, o.ResourceVersion)
		}
		return nil
	}))
	if !slices.Equal(got, want) {
		s.Fatalf("view %s has %v, want %v", view, got, want)
	}
}

func (s *suite) stored(name, version string) bool {
	s.Helper()
	want := content(name, version)
	got, err := readObject(s.Store, testScope, store.NewObject(name, version, want))
	if errors.Is(err, store.ErrChanged) {
		return false
	}
	s.ok(err)
	if !bytes.Equal(got, want) {
		s.Fatalf("object %s@%s has other bytes", name, version)
	}
	return true
}

func (s *suite) conflict() {
	s.commit(replacement("a", "7", objects("x", "3")...), replacement("b", "7", objects("y", "3")...))
	s.refuse(store.ErrConflict, update("b", "7", "8", objects("y", "8")...), update("a", "6", "9", objects("x", "9")...))
	s.has("a", "7", "x", "3")
	s.has("b", "7", "y", "3")

	err := s.Commit(store.Batch{Changes: []store.Change{update("a", "6", "9", objects("x", "9")...)}})
	var refused *store.Error
	if !errors.As(err, &refused) || refused.View != id("a") {
		s.Fatalf("the error does not name the view: %v", err)
	}
	c := update("a", "7", "9", objects("x", "9")...)
	c.Header.Scope = "v1/pods json"
	s.refuse(store.ErrConflict, c)
}

func (s *suite) stale() {
	s.commit(replacement("a", "7", objects("x", "3")...))
	s.commit(store.Change{ID: id("a"), Op: store.MarkStale}, store.Change{ID: id("b"), Op: store.MarkStale})
	s.reopen()
	s.has("a", "7", "x", "3")
	v, _, err := s.Members(id("a"))
	s.ok(err)
	if !v.Stale {
		s.Fatal("the view is not marked stale")
	}
	_, _, err = s.Members(id("b"))
	s.wantErr(err, store.ErrNotFound)
	s.refuse(store.ErrConflict, update("a", "7", "9"))
	s.commit(replacement("a", "9", objects("x", "9")...))
	s.commit(update("a", "9", "10"))
	s.has("a", "10", "x", "9")
	v, _, err = s.Members(id("a"))
	s.ok(err)
	if want := int64(len("x9") + len(content("x", "9"))); v.Bytes != want {
		s.Fatalf("the view has %d bytes, want %d", v.Bytes, want)
	}
}

func (s *suite) shared() {
	const views = 5
	for i := range views {
		s.commit(replacement(fmt.Sprint(i), "7", objects("x", "3", "y", "7")...))
	}
	for i := range views {
		if !s.stored("x", "3") {
			s.Fatalf("the object has gone with %d of %d views", i, views)
		}
		s.ok(s.Check())
		if i%2 == 0 {
			s.commit(store.Change{ID: id(fmt.Sprint(i)), Op: store.Drop})
		} else {
			s.commit(update(fmt.Sprint(i), "7", "8", objects("x", "8")...))
		}
	}
	if s.stored("x", "3") {
		s.Fatal("the object is still stored")
	}
	s.has("1", "8", "x", "8", "y", "7")
}

func (s *suite) moves() {
	s.commit(replacement("a", "7", objects("x", "3")...))
	taken := objects("x", "3")
	taken[0].Bytes = nil
	s.commit(store.Change{ID: id("a"), Op: store.Drop}, replacement("b", "7", taken...))
	s.has("b", "7", "x", "3")
	c := update("b", "7", "8")
	c.Delete = []string{"x"}
	s.commit(replacement("c", "7", taken...), c)
	s.has("c", "7", "x", "3")
}

// bytesOf reads all objects of a view: name → bytes.
func (s *suite) bytesOf(view string) map[string]string {
	s.Helper()
	got := map[string]string{}
	s.ok(streamObjects(s.Store, id(view), func(store.View) error { return nil }, func(o store.Object) error {
		got[o.Name] = string(o.Bytes)
		return nil
	}))
	return got
}

func (s *suite) reads(view, name, want string) {
	s.Helper()
	if got := s.bytesOf(view)[name]; got != want {
		s.Fatalf("view %s has %q as %s, want %q", view, got, name, want)
	}
}

func (s *suite) notGiven() {
	first, second := store.NewObject("x", "3", []byte("first")), store.NewObject("x", "3", []byte("the second"))
	s.commit(replacement("a", "7", first), replacement("b", "7", second))
	first.Bytes, second.Bytes = nil, nil
	s.commit(replacement("c", "7", second), replacement("d", "7", first))
	s.reads("c", "x", "the second")
	s.reads("d", "x", "first")
	third := store.Object{Name: "x", ResourceVersion: "3", Sum: store.SumOf([]byte("third"))}
	s.refuse(store.ErrNoObject, replacement("a", "7", third))
	s.reads("a", "x", "first")
}

func (s *suite) invalid() {
	for name, c := range map[string]store.Change{
		"no view":       {Op: store.Replace, Header: header("7")},
		"no operation":  {ID: id("a"), Op: 77, Header: header("7")},
		"no scope":      {ID: id("a"), Op: store.Replace},
		"empty name":    replacement("a", "7", objects("", "3")...),
		"no version":    replacement("a", "7", objects("x", "")...),
		"no sum":        replacement("a", "7", store.Object{Name: "x", ResourceVersion: "3", Bytes: []byte("x")}),
		"NUL in a name": replacement("a", "7", objects("x\x00y", "3")...),
		"long name":     replacement("a", "7", objects(strings.Repeat("x", 5000), "3")...),
	} {
		if err := s.Commit(store.Batch{Changes: []store.Change{c}}); !errors.Is(err, store.ErrInvalid) {
			s.Errorf("%s: got error %v", name, err)
		}
	}
	for _, p := range []store.Pair{{Key: "x"}, {Table: "b"}, {Table: "b", Key: strings.Repeat("x", 5000)}} {
		s.wantErr(s.Commit(store.Batch{Pairs: []store.Pair{p}}), store.ErrInvalid)
	}
}

func (s *suite) closed() {
	s.commit(replacement("a", "7"))
	s.ok(s.Close())
	s.ok(s.Close())
	s.isClosed = true
	s.wantErr(s.Commit(store.Batch{}), store.ErrClosed)
	s.wantErr(s.Views(func(store.View) error { return fmt.Errorf("called") }), store.ErrClosed)
	_, err := readObject(s.Store, testScope, store.NewObject("x", "1", nil))
	s.wantErr(err, store.ErrClosed)
	_, err = s.Get("b", "k")
	s.wantErr(err, store.ErrClosed)
}
