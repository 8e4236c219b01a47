package writeback

import (
	"fmt"
	"maps"
	"slices"

	"github.com/edgehub-io/edgehub/cache/store"
)

// pending are the changes that wait for a commit, at most one for each view and key. It is not
// safe for concurrent use.
type pending struct {
	views  map[store.ID]*pendingView
	pairs  map[pairKey]store.Pair
	bytes  int64
	listed bool // a view was replaced
}

type pairKey struct{ table, key string }

// pendingView is all changes of a view as one.
type pendingView struct {
	change  store.Change             // without Put and Delete
	members map[string]*store.Object // nil if the member was removed
	bytes   int64
}

const (
	// memberCost is the approximate memory of a pending member, in bytes, without its strings
	// and the bytes of the object.
	memberCost = 144
	// headerCost is the approximate memory of a pending view without members, in bytes, with
	// a key and a blob.
	headerCost = 1 << 10
)

func newPending() *pending {
	return &pending{views: map[store.ID]*pendingView{}, pairs: map[pairKey]store.Pair{}}
}

func (p *pending) empty() bool { return len(p.views) == 0 && len(p.pairs) == 0 }

// add appends a change. It returns ErrConflict, and changes nothing, if the change does not start
// from the state that earlier changes lead to.
func (p *pending) add(c *store.Change) error {
	before := p.views[c.ID]
	var was int64
	if before != nil {
		was = before.bytes
	}
	after, err := before.then(c)
	if err != nil {
		return err
	}
	p.bytes += after.bytes - was
	p.views[c.ID] = after
	p.listed = p.listed || c.Op == store.Replace
	return nil
}

// then returns v followed by a change. v may be nil.
func (v *pendingView) then(c *store.Change) (*pendingView, error) {
	if c.Op == store.MarkStale && v != nil && v.change.Op == store.Drop {
		return v, nil
	}
	if c.Op == store.Update && v != nil {
		return v.updated(c)
	}
	after := &pendingView{change: *c, members: make(map[string]*store.Object, len(c.Put)), bytes: headerCost}
	after.change.Put, after.change.Delete = nil, nil
	if c.Op == store.Update || c.Op == store.Replace {
		after.fill(c, v)
	}
	return after, nil
}

// updated returns v followed by an Update.
func (v *pendingView) updated(c *store.Change) (*pendingView, error) {
	header := v.change.Header
	switch v.change.Op {
	case store.MarkStale:
		return nil, fmt.Errorf("%w: it is stale", store.ErrConflict)
	case store.Drop:
		if !c.New || c.From != "" {
			return nil, fmt.Errorf("%w: it was dropped", store.ErrConflict)
		}
		whole := *c
		whole.Op = store.Replace
		return (*pendingView)(nil).then(&whole)
	case store.Update, store.Replace:
		if header.ResourceVersion != c.From || header.Scope != c.Header.Scope {
			return nil, fmt.Errorf("%w: it is at version %q, not %q", store.ErrConflict, header.ResourceVersion, c.From)
		}
	}
	v.change.Header = c.Header
	v.fill(c, v)
	return v, nil
}

// fill applies the members of a change. Bytes that the change does not give are taken from before,
// if they are pending there.
func (v *pendingView) fill(c *store.Change, before *pendingView) {
	for _, name := range c.Delete {
		v.remove(name)
		if v.change.Op == store.Update {
			v.set(name, nil)
		}
	}
	for _, o := range c.Put {
		if o.Bytes == nil && before != nil && before.change.Header.Scope == c.Header.Scope {
			if old := before.members[o.Name]; old != nil && old.ResourceVersion == o.ResourceVersion && old.Sum == o.Sum {
				o.Bytes = old.Bytes
			}
		}
		v.remove(o.Name)
		v.set(o.Name, &o)
	}
}

func (v *pendingView) set(name string, o *store.Object) {
	v.members[name] = o
	v.bytes += cost(name, o)
}

func (v *pendingView) remove(name string) {
	if o, ok := v.members[name]; ok {
		delete(v.members, name)
		v.bytes -= cost(name, o)
	}
}

// cost returns the approximate memory of a pending member, in bytes.
func cost(name string, o *store.Object) int64 {
	n := int64(len(name)) + memberCost
	if o != nil {
		n += int64(len(o.ResourceVersion) + len(o.Bytes))
	}
	return n
}

// set sets a key's new value.
func (p *pending) set(pair store.Pair) {
	k := pairKey{pair.Table, pair.Key}
	if old, ok := p.pairs[k]; ok {
		p.bytes -= pairSize(&old)
	}
	p.bytes += pairSize(&pair)
	p.pairs[k] = pair
}

func pairSize(p *store.Pair) int64 {
	return int64(len(p.Key)+len(p.Value)) + memberCost
}

// follow appends all of next to p, but for the changes of views that conflict: it returns their IDs.
func (p *pending) follow(next *pending) []store.ID {
	var refused []store.ID
	for id, v := range next.views {
		c := v.batched()
		if err := p.add(&c); err != nil {
			refused = append(refused, id)
		}
	}
	for _, pair := range next.pairs {
		p.set(pair)
	}
	return refused
}

// lose replaces the changes of a view by an operation.
func (p *pending) lose(id store.ID, op store.Op) {
	p.remove(id)
	p.add(&store.Change{ID: id, Op: op}) //nolint:errcheck // nothing is left that it could conflict with
}

func (p *pending) remove(id store.ID) {
	if v := p.views[id]; v != nil {
		p.bytes -= v.bytes
		delete(p.views, id)
	}
}

// largest returns the view whose loss frees the most memory.
func (p *pending) largest() (id store.ID, ok bool) {
	var most int64
	for candidate, v := range p.views {
		if len(v.members) > 0 && v.bytes > most {
			id, most, ok = candidate, v.bytes, true
		}
	}
	return id, ok
}

// object returns an object's bytes.
func (p *pending) object(k store.ObjectKey) ([]byte, bool) {
	for _, v := range p.views {
		if v.change.Header.Scope != k.Scope {
			continue
		}
		if o := v.members[k.Name]; o != nil && o.ResourceVersion == k.ResourceVersion && o.Sum == k.Sum && o.Bytes != nil {
			return o.Bytes, true
		}
	}
	return nil, false
}

// batched returns the changes as one, with its members in order.
func (v *pendingView) batched() store.Change {
	c := v.change
	for _, name := range slices.Sorted(maps.Keys(v.members)) {
		if o := v.members[name]; o == nil {
			c.Delete = append(c.Delete, name)
		} else {
			c.Put = append(c.Put, *o)
		}
	}
	return c
}

func (p *pending) batch() store.Batch {
	var b store.Batch
	for _, v := range p.views {
		b.Changes = append(b.Changes, v.batched())
	}
	for _, pair := range p.pairs {
		b.Pairs = append(b.Pairs, pair)
	}
	return b
}
