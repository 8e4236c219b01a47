package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/edgehub-io/edgehub/cache/store"
)

// Run with -race.
func TestConcurrentReadersWritersAndRewrites(t *testing.T) {
	const steps = 15
	s := mustOpen(t, t.TempDir(), store.Options{})
	fill(t, s, 1, 1)
	all, ctx := errgroup.WithContext(t.Context())
	for view := range testViews {
		all.Go(func() error {
			for v := 1; v < steps; v++ {
				if err := s.Commit(store.Batch{Changes: []store.Change{step(view, v)}}); err != nil {
					return err
				}
			}
			return nil
		})
		for range 2 {
			all.Go(func() error {
				for last := 0; last < steps && ctx.Err() == nil; {
					version, err := verify(s, view)
					if err != nil || version < last {
						return errors.Join(err, errWrong)
					}
					last = version
				}
				return nil
			})
		}
	}
	all.Go(func() error { return errors.Join(s.Rewrite(), s.Check(), s.Rewrite()) })
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, steps)
}

// Run with -race.
func TestAReaderFindsDamageWhileTheLogIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	c := store.Change{Op: store.Replace, Header: testHeader(1)}
	for i := range 3000 {
		c.Put = append(c.Put, store.NewObject(fmt.Sprint(i), "1", bytes.Repeat([]byte("object"), 100)))
	}
	for view := range 4 {
		c.ID = viewID(view)
		mustCommit(t, s, c)
	}
	log := readMain(t, dir)
	for at := 200; at < len(c.Put)*600; at += 600 {
		log[at] ^= 1
	}
	writeMain(t, dir, log)
	var all errgroup.Group
	all.Go(s.Rewrite)
	damaged := 0
	for i := range c.Put {
		if _, err := readObject(s, testScope, c.Put[i]); errors.Is(err, store.ErrCorrupt) {
			damaged++
		} else if err != nil {
			t.Error(err)
		}
	}
	if err := all.Wait(); err != nil || damaged < len(c.Put)/2 {
		t.Errorf("%d objects of %d are damaged (%v)", damaged, len(c.Put), err)
	}
}
