package cache

import "sync"

// shared is the bytes of objects that are just being read, by whomever: several
// clients that begin at once read the same, and it is held once, for as long as a
// stage has it. It is safe for concurrent use; the zero value is empty.
type shared struct {
	mu     sync.Mutex
	scopes map[string]map[sharedKey]sharedBytes
}

type sharedKey struct{ name, version string }

type sharedBytes struct {
	bytes  []byte
	stages int // that have it
}

// take returns an object's bytes, which nobody may change, or nil. Each take, and
// each put, has to be followed by a drop.
func (s *shared) take(scope, name, version string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sharedKey{name, version}
	of, ok := s.scopes[scope][key]
	if !ok {
		return nil
	}
	of.stages++
	s.scopes[scope][key] = of
	return of.bytes
}

func (s *shared) put(scope, name, version string, bytes []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scopes == nil {
		s.scopes = map[string]map[sharedKey]sharedBytes{}
	}
	of := s.scopes[scope]
	if of == nil {
		of = map[sharedKey]sharedBytes{}
		s.scopes[scope] = of
	}
	key := sharedKey{name, version}
	of[key] = sharedBytes{bytes, of[key].stages + 1}
}

func (s *shared) drop(scope, name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, key := s.scopes[scope], sharedKey{name, version}
	b, ok := of[key]
	if !ok {
		return // of before forget
	}
	if b.stages--; b.stages > 0 {
		of[key] = b
		return
	}
	if delete(of, key); len(of) == 0 {
		delete(s.scopes, scope)
	}
}

// forget has nothing of a scope shared any more: its versions name other objects
// now.
func (s *shared) forget(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.scopes, scope)
}
