package store_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/edgehub-io/edgehub/cache/store"
)

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

func (s *suite) otherBytes() {
	const actual, longer, shorter = "what there is", "what a dry run would have made of it", "less"
	s.commit(replacement("a", "7", store.NewObject("x", "3", []byte(actual))))
	s.commit(replacement("b", "7", store.NewObject("x", "3", []byte(longer))), replacement("c", "7", store.NewObject("x", "3", []byte(shorter))))
	for range 2 {
		s.reads("a", "x", actual)
		s.reads("b", "x", longer)
		s.reads("c", "x", shorter)
		s.reopen()
	}
	s.commit(store.Change{ID: id("b"), Op: store.Drop})
	s.reads("a", "x", actual)
	_, err := readObject(s.Store, scope, store.NewObject("x", "3", []byte(longer)))
	s.wantErr(err, store.ErrChanged)
}

func (s *suite) changedBytes() {
	before, after := store.NewObject("x", "3", []byte("without a default")), store.NewObject("x", "3", []byte("with it"))
	s.commit(replacement("a", "7", before), replacement("b", "7", before))
	s.commit(replacement("a", "7", after), update("b", "7", "8", after))
	s.reads("a", "x", "with it")
	s.reads("b", "x", "with it")
	_, err := readObject(s.Store, scope, before)
	s.wantErr(err, store.ErrChanged)
	v, _, err := s.Members(id("b"))
	s.ok(err)
	if want := int64(len("x") + len("3") + len("with it")); v.Bytes != want || v.Members != 1 {
		s.Fatalf("got %d bytes of %d members, want %d of 1", v.Bytes, v.Members, want)
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

func (s *suite) wrongSum() {
	s.commit(replacement("a", "7", objects("x", "3", "y", "7")...))
	s.ok(s.Check())
	o := store.NewObject("z", "8", []byte("given"))
	o.Bytes = []byte("other")
	s.commit(update("a", "7", "8", o))
	s.wantErr(s.Check(), store.ErrCorrupt)
	s.commit(replacement("a", "9", store.NewObject("z", "8", []byte("given")))) // it is read again
	s.reads("a", "z", "given")
}

func (s *suite) scopes() {
	s.commit(replacement("a", "7", objects("x", "3")...))
	c := replacement("b", "7", store.NewObject("x", "3", []byte("{}")))
	c.Header.Scope = "v1/pods json"
	s.commit(c)
	s.has("a", "7", "x", "3")
	b, err := readObject(s.Store, "v1/pods json", store.NewObject("x", "3", []byte("{}")))
	s.ok(err)
	if string(b) != "{}" {
		s.Fatalf("got %q", b)
	}
	c = replacement("a", "8", objects("x", "3")...) // from one scope to another
	c.Header.Scope = "v1/pods yaml"
	s.commit(c)
	if s.stored("x", "3") {
		s.Fatal("the object of the old scope is still stored")
	}
}

// many returns enough objects for several chunks, and their names with versions.
func many(version string) (list []store.Object, pairs []string) {
	for i := range 400 {
		pairs = append(pairs, fmt.Sprintf("default/pod-%03d", i), version)
	}
	return objects(pairs...), pairs
}

func (s *suite) consistent() {
	list, pairs := many("1")
	s.commit(replacement("a", "1", list...))
	next, nextPairs := many("2")
	n := 0
	s.ok(streamObjects(s.Store, id("a"), func(store.View) error {
		s.commit(replacement("a", "2", next...))
		return nil
	}, func(o store.Object) error {
		if o.Name != pairs[2*n] || o.ResourceVersion != "1" || !slices.Equal(o.Bytes, list[n].Bytes) {
			return fmt.Errorf("object %d is %s@%s, or has other bytes", n, o.Name, o.ResourceVersion)
		}
		n++
		switch n {
		case 100:
			return s.Commit(store.Batch{Changes: []store.Change{{ID: id("a"), Op: store.Drop}}})
		case 200:
			s.commit(replacement("a", "2", next...)) // the same objects come again
		}
		return nil
	}))
	if n != len(list) {
		s.Fatalf("got %d objects of %d", n, len(list))
	}
	s.has("a", "2", nextPairs...)
	s.commit()
	if s.stored("default/pod-000", "1") {
		s.Fatal("what was kept for a reader is still stored")
	}
}

func (s *suite) blockedReader() {
	list, _ := many("1")
	s.commit(replacement("a", "1", list...))
	blocked, release := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		first := true
		done <- streamObjects(s.Store, id("a"), func(store.View) error { return nil }, func(store.Object) error {
			if first {
				first = false
				close(blocked)
				<-release
			}
			return nil
		})
	}()
	<-blocked
	for i := range 20 {
		s.commit(update("a", fmt.Sprint(i+1), fmt.Sprint(i+2), objects("x", fmt.Sprint(i+2))...))
	}
	close(release)
	s.ok(<-done)
}

func (s *suite) callbackErrors() {
	s.commit(replacement("a", "7", objects("x", "3", "y", "7")...))
	stop := errors.New("stop")
	noHead := func(store.View) error { return nil }
	s.wantErr(s.Views(func(store.View) error { return stop }), stop)
	s.wantErr(streamObjects(s.Store, id("a"), func(store.View) error { return stop }, nil), stop)
	s.wantErr(streamObjects(s.Store, id("a"), noHead, func(store.Object) error { return stop }), stop)
}
