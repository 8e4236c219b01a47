package store_test

import (
	"fmt"
	"slices"

	"github.com/edgehub-io/edgehub/cache/store"
)

func (s *suite) tables() {
	s.ok(s.Commit(store.Batch{
		Changes: []store.Change{replacement("a", "7", objects("x", "3")...)},
		Pairs: []store.Pair{
			{Table: "spool", Key: "0002", Value: []byte("second")},
			{Table: "spool", Key: "0001", Value: []byte("first")},
			{Table: "tokens", Key: "0001", Value: []byte{}},
		},
	}))
	// Refused as a whole: no pair without its view.
	err := s.Commit(store.Batch{
		Changes: []store.Change{update("a", "5", "9")},
		Pairs:   []store.Pair{{Table: "spool", Key: "0003", Value: []byte("third")}},
	})
	s.wantErr(err, store.ErrConflict)
	s.reopen()
	s.holds("spool", "0001=first", "0002=second")
	s.holds("tokens", "0001=")
	s.holds("never made")

	v, err := s.Get("spool", "0002")
	s.ok(err)
	if string(v) != "second" {
		s.Fatalf("got %q", v)
	}
	for _, key := range [][2]string{{"spool", "0003"}, {"never made", "0001"}} {
		_, err = s.Get(key[0], key[1])
		s.wantErr(err, store.ErrNotFound)
	}
	s.ok(s.Commit(store.Batch{Pairs: []store.Pair{{Table: "spool", Key: "0001"}, {Table: "spool", Key: "0007"}}}))
	s.holds("spool", "0002=second")
}

func (s *suite) holds(bucket string, want ...string) {
	s.Helper()
	keys, err := s.Keys(bucket)
	s.ok(err)
	var got []string
	for _, key := range keys {
		value, err := s.Get(bucket, key)
		s.ok(err)
		got = append(got, key+"="+string(value))
	}
	if !slices.Equal(got, want) {
		s.Fatalf("table %s has %q, want %q", bucket, got, want)
	}
}

func (s *suite) largeTable() {
	var pairs []store.Pair
	for i := range 300 {
		pairs = append(pairs, store.Pair{Table: "spool", Key: fmt.Sprintf("%04d", i), Value: content("event", fmt.Sprint(i))})
	}
	s.ok(s.Commit(store.Batch{Pairs: pairs}))
	keys, err := s.Keys("spool")
	s.ok(err)
	if len(keys) != len(pairs) {
		s.Fatalf("got %d pairs of %d", len(keys), len(pairs))
	}
	for i, key := range keys {
		value, err := s.Get("spool", key)
		s.ok(err)
		if key != pairs[i].Key || !slices.Equal(value, pairs[i].Value) {
			s.Fatalf("pair %d is %s, or has another value", i, key)
		}
		// What was read may be removed at once.
		s.ok(s.Commit(store.Batch{Pairs: []store.Pair{{Table: "spool", Key: key}}}))
	}
	s.holds("spool")
}
