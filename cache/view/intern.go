package view

import (
	"sync"

	wal "github.com/edgehub-io/edgehub/cache/log"
)

// interned holds the bytes of objects that are being read. Clients that start at the same
// time read the same objects; these are held once, as long as a Builder uses them.
// Objects are identified by their content alone, so no user gets bytes that the apiserver
// has not sent it. It is safe for concurrent use; the zero value is empty.
type interned struct {
	mu      sync.Mutex
	objects map[wal.Sum]internedBytes
}

// Intern returns the bytes of an object that is given in two parts: those that another client
// has just read, or else a copy.
func (p *interned) Intern(sum wal.Sum, head string, rest []byte) []byte {
	if b := p.Take(sum); b != nil {
		return b
	}
	b := append(append(make([]byte, 0, len(head)+len(rest)), head...), rest...)
	p.Put(sum, b)
	return b
}

type internedBytes struct {
	bytes []byte
	refs  int
}

// Take returns the bytes with a sum, which must not be changed, or nil. Each Take that
// returns bytes, and each Put, must be followed by a Drop.
func (p *interned) Take(sum wal.Sum) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, ok := p.objects[sum]
	if !ok {
		return nil
	}
	o.refs++
	p.objects[sum] = o
	return o.bytes
}

// Put adds bytes; see Take.
func (p *interned) Put(sum wal.Sum, bytes []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[wal.Sum]internedBytes{}
	}
	p.objects[sum] = internedBytes{bytes, p.objects[sum].refs + 1}
}

// Drop releases the bytes with a sum; see Take.
func (p *interned) Drop(sum wal.Sum) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.objects[sum]
	if o.refs--; o.refs > 0 {
		p.objects[sum] = o
	} else {
		delete(p.objects, sum)
	}
}

// Interned returns how many objects are held for lists that are being read.
func (s *Views) Interned() int {
	s.interned.mu.Lock()
	defer s.interned.mu.Unlock()
	return len(s.interned.objects)
}
