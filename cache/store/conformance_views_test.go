package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/edgehub-io/edgehub/cache/store"
)

func (s *suite) readsBack() {
	s.commit(replacement("a", "7", objects("default/x", "3", "default/y", "7", "kube-system/a", "1")...))
	s.commit(replacement("b", "9", objects("default/z", "9")...))
	for range 2 {
		s.has("a", "7", "default/x", "3", "default/y", "7", "kube-system/a", "1")
		s.has("b", "9", "default/z", "9")
		v, _, err := s.Members(id("a"))
		s.ok(err)
		if !reflect.DeepEqual(v.Header, header("7")) || v.Stale || v.ID != id("a") {
			s.Fatalf("got header %+v", v)
		}
		n := 0
		s.ok(s.Views(func(v store.View) error {
			n++
			return v.Err
		}))
		if n != 2 {
			s.Fatalf("got %d views, want 2", n)
		}
		s.reopen()
	}
	_, _, err := s.Members(id("c"))
	s.wantErr(err, store.ErrNotFound)
}

func (s *suite) emptyView() {
	s.commit(replacement("a", "7"))
	s.has("a", "7")
	s.reopen()
	s.has("a", "7")
}

func (s *suite) update() {
	s.commit(replacement("a", "7", objects("x", "3", "y", "7", "z", "2")...))
	c := update("a", "7", "9", objects("x", "8", "w", "9")...)
	c.Delete = []string{"y", "never there"}
	s.commit(c)
	s.has("a", "9", "w", "9", "x", "8", "z", "2")
	if s.stored("x", "3") || s.stored("y", "7") {
		s.Fatal("what no view holds is still stored")
	}
	s.commit(update("a", "9", "11")) // a bookmark
	s.has("a", "11", "w", "9", "x", "8", "z", "2")
}

func (s *suite) replace() {
	s.commit(replacement("a", "7", objects("x", "3", "y", "7")...))
	s.commit(replacement("a", "9", objects("x", "3", "z", "9")...))
	s.has("a", "9", "x", "3", "z", "9")
	if s.stored("y", "7") {
		s.Fatal("what no view holds is still stored")
	}
	s.commit(replacement("a", "2")) // versions may go backwards
	s.has("a", "2")
}

func (s *suite) replaceKeeps() {
	s.commit(replacement("a", "7", objects("x", "3", "y", "7")...))
	kept := objects("x", "3")
	kept[0].Bytes = nil
	s.commit(replacement("a", "9", append(kept, objects("z", "9")...)...))
	s.has("a", "9", "x", "3", "z", "9")
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

func (s *suite) again() {
	s.commit(replacement("a", "7", objects("x", "3", "y", "7")...))
	c := update("a", "7", "9", objects("x", "9")...)
	c.Delete = []string{"y"}
	s.commit(c)
	s.commit(c)
	s.has("a", "9", "x", "9")
}

func (s *suite) newView() {
	s.refuse(store.ErrConflict, update("a", "", "", objects("x", "3")...))
	c := update("a", "", "", objects("x", "3")...)
	c.New, c.Header.Complete = true, false
	s.commit(c)
	s.has("a", "", "x", "3")
	c.Put = objects("y", "4")
	s.commit(c)
	s.has("a", "", "x", "3", "y", "4")
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
}

func (s *suite) noObject() {
	s.commit(replacement("a", "7", objects("x", "3")...))
	missing := objects("x", "4")
	missing[0].Bytes = nil
	s.refuse(store.ErrNoObject, update("a", "7", "9", missing...))
	s.has("a", "7", "x", "3")
}

func (s *suite) sizes() {
	long := store.NewObject("x", "12", make([]byte, 1000))
	s.commit(replacement("a", "7", long))
	for range 3 {
		v, _, err := s.Members(id("a"))
		s.ok(err)
		if want := int64(len("x") + len("12") + 1000); v.Bytes != want || v.Members != 1 {
			s.Fatalf("got %d bytes of %d members, want %d of 1", v.Bytes, v.Members, want)
		}
		s.commit(replacement("a", "7", long))
	}
	c := update("a", "7", "8")
	c.Delete = []string{"x"}
	s.commit(c)
	v, _, err := s.Members(id("a"))
	s.ok(err)
	if v.Bytes != 0 {
		s.Fatalf("got %d bytes, want none", v.Bytes)
	}
}

func (s *suite) drop() {
	s.commit(replacement("a", "7", objects("x", "3", "y", "7")...), replacement("b", "7", objects("x", "3")...))
	s.commit(store.Change{ID: id("a"), Op: store.Drop})
	s.commit(store.Change{ID: id("a"), Op: store.Drop})
	_, _, err := s.Members(id("a"))
	s.wantErr(err, store.ErrNotFound)
	if s.stored("y", "7") || !s.stored("x", "3") {
		s.Fatal("dropping a view must remove what only it held")
	}
	s.commit(replacement("a", "9", objects("y", "9")...)) // it may come again
	s.has("a", "9", "y", "9")
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
	_, err := readObject(s.Store, scope, store.NewObject("x", "1", nil))
	s.wantErr(err, store.ErrClosed)
	_, err = s.Get("b", "k")
	s.wantErr(err, store.ErrClosed)
}
