package disk

import (
	"sync"

	"github.com/edgehub-io/edgehub/cache/store"
)

// shared is the bytes of objects that are just being read, by whomever: several
// clients that begin at once read the same, and it is held once, for as long as a
// stage has it. Objects are shared by their content alone, so nobody gets bytes that
// it has not been sent itself. It is safe for concurrent use; the zero value is empty.
type shared struct {
	mu      sync.Mutex
	objects map[store.Sum]sharedBytes
}

type sharedBytes struct {
	bytes  []byte
	stages int // that have it
}

// Take returns the bytes with a sum, which nobody may change, or nil. Each take that
// returns some, and each put, has to be followed by a drop.
func (s *shared) Take(sum store.Sum) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.objects[sum]
	if !ok {
		return nil
	}
	of.stages++
	s.objects[sum] = of
	return of.bytes
}

// Put has bytes shared; see Take.
func (s *shared) Put(sum store.Sum, bytes []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = map[store.Sum]sharedBytes{}
	}
	s.objects[sum] = sharedBytes{bytes, s.objects[sum].stages + 1}
}

// Drop lets go of the bytes with a sum; see Take.
func (s *shared) Drop(sum store.Sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.objects[sum]
	if of.stages--; of.stages > 0 {
		s.objects[sum] = of
	} else {
		delete(s.objects, sum)
	}
}

// Len is how many objects are held.
func (s *shared) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}
