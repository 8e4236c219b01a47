package store_test

import (
	"fmt"
	"testing"

	"github.com/edgehub-io/edgehub/cache/store"
)

// A view of 5,000 pods, each of which has 5.8 KB, as a kubelet-sized apiserver
// sends them in protobuf.
const (
	benchPods = 5000
	benchSize = 5800
)

func benchView(version string) store.Change {
	c := store.Change{ID: viewID(0), Op: store.Replace, Header: testHeader(1)}
	c.Header.ResourceVersion = version
	for i := range benchPods {
		b := make([]byte, benchSize)
		copy(b, version)
		c.Put = append(c.Put, store.NewObject(fmt.Sprintf("default/deployment-7d4b9c6f5-%05d", i), version, b))
	}
	return c
}

var benchOptions = map[string]store.Options{"plain": {}, "encrypted": {Key: make([]byte, 32)}}

func BenchmarkCommit5000(b *testing.B) {
	for name, opts := range benchOptions {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(benchPods * benchSize)
			for b.Loop() {
				b.StopTimer()
				s := mustOpen(b, b.TempDir(), opts)
				c := benchView("1")
				b.StartTimer()
				mustCommit(b, s, c)
				b.StopTimer()
				s.Close()
				b.StartTimer()
			}
		})
	}
}

// What one second brings at 200 updates a second.
func BenchmarkCommit200Updates(b *testing.B) {
	for name, opts := range benchOptions {
		b.Run(name, func(b *testing.B) {
			s := mustOpen(b, b.TempDir(), opts)
			c := benchView("1")
			mustCommit(b, s, c)
			v := 1
			for b.Loop() {
				next := store.Change{ID: c.ID, From: fmt.Sprint(v), Header: c.Header}
				v++
				next.Header.ResourceVersion = fmt.Sprint(v)
				for i := range 200 {
					o := c.Put[(v*200+i*17)%benchPods]
					o.ResourceVersion = fmt.Sprint(v)
					next.Put = append(next.Put, o)
				}
				mustCommit(b, s, next)
			}
		})
	}
}

func BenchmarkObjects5000(b *testing.B) {
	for name, opts := range benchOptions {
		b.Run(name, func(b *testing.B) {
			s := mustOpen(b, b.TempDir(), opts)
			mustCommit(b, s, benchView("1"))
			b.SetBytes(benchPods * benchSize)
			for b.Loop() {
				n := 0
				err := streamObjects(s, viewID(0), func(store.View) error { return nil }, func(o store.Object) error {
					n += len(o.Bytes)
					return nil
				})
				if err != nil || n != benchPods*benchSize {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// A start: Open, and the headers of all views, of which one has 5,000 pods.
func BenchmarkOpenAndViews(b *testing.B) {
	dir := b.TempDir()
	s := mustOpen(b, dir, store.Options{})
	mustCommit(b, s, benchView("1"))
	for view := range 200 {
		c := store.Change{ID: viewID(view + 1), Op: store.Replace, Header: testHeader(1)}
		c.Put = []store.Object{store.NewObject("default/one", "1", make([]byte, benchSize))}
		mustCommit(b, s, c)
	}
	s.Close()
	for b.Loop() {
		s, err := store.Open(dir, store.Options{})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		if err := s.Views(func(v store.View) error {
			n++
			return v.Err
		}); err != nil || n != 201 {
			b.Fatal(n, err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
