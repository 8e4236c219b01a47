package store_test

import (
	"testing"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/storetest"
)

func TestConformance(t *testing.T) {
	for name, opts := range map[string]store.Options{
		"plain":     {},
		"encrypted": {Key: []byte("0123456789abcdef0123456789abcdef")},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Test(t, func(t *testing.T, dir string) storetest.Store {
				s, err := store.Open(dir, opts)
				if err != nil {
					t.Fatal(err)
				}
				if r := s.Recovery(); r.Cause != nil {
					t.Fatalf("a whole file was taken for a damaged one: %v", r.Cause)
				}
				return s
			})
		})
	}
}
