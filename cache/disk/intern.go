package disk

import (
	"sync"

	"github.com/edgehub-io/edgehub/cache/store"
)

// interned holds the bytes of objects that are being read. Clients that start at the same
// time read the same objects; these are held once, as long as a view.Builder uses them.
// Objects are identified by their content alone, so no user gets bytes that the apiserver
// has not sent it. It is safe for concurrent use; the zero value is empty.
type interned struct {
	mu      sync.Mutex
	objects map[store.Sum]internedBytes
}

type internedBytes struct {
	bytes []byte
	refs  int
}

// Take returns the bytes with a sum, which must not be changed, or nil. Each Take that
// returns bytes, and each Put, must be followed by a Drop.
func (p *interned) Take(sum store.Sum) []byte {
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
func (p *interned) Put(sum store.Sum, bytes []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[store.Sum]internedBytes{}
	}
	p.objects[sum] = internedBytes{bytes, p.objects[sum].refs + 1}
}

// Drop releases the bytes with a sum; see Take.
func (p *interned) Drop(sum store.Sum) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.objects[sum]
	if o.refs--; o.refs > 0 {
		p.objects[sum] = o
	} else {
		delete(p.objects, sum)
	}
}

// Len returns how many objects are held.
func (p *interned) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.objects)
}
