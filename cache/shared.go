package cache

import "sync"

// shared is the bytes of objects that are just being read, by whomever: several
// clients that begin at once read the same, and it is held once. A scope's bytes
// are let go of when its last stage ends. It is safe for concurrent use; the zero
// value is empty.
type shared struct {
	mu     sync.Mutex
	scopes map[string]*sharedScope
}

type sharedScope struct {
	stages int
	bytes  map[sharedKey][]byte
}

type sharedKey struct{ name, version string }

// join is the beginning of a stage.
func (s *shared) join(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scopes == nil {
		s.scopes = map[string]*sharedScope{}
	}
	of := s.scopes[scope]
	if of == nil {
		of = &sharedScope{bytes: map[sharedKey][]byte{}}
		s.scopes[scope] = of
	}
	of.stages++
}

// leave is its end.
func (s *shared) leave(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.scopes[scope]
	if of.stages--; of.stages == 0 {
		delete(s.scopes, scope)
	}
}

// get returns an object's bytes, which nobody may change, or nil.
func (s *shared) get(scope, name, version string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scopes[scope].bytes[sharedKey{name, version}]
}

func (s *shared) put(scope, name, version string, bytes []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes[scope].bytes[sharedKey{name, version}] = bytes
}
