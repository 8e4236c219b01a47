package writeback

import (
	"fmt"
	"maps"
	"slices"

	"github.com/edgehub-io/edgehub/cache/store"
)

// pending is changes that wait for a commit, at most one for each view and key.
// Its owner guards it.
type pending struct {
	views map[store.ID]*pendingView
	pairs map[pairKey]store.Pair
	bytes int64
}

type pairKey struct{ table, key string }

// pendingView is all that has happened to a view, as one change.
type pendingView struct {
	change  store.Change // without Put and Delete
	members map[string]pendingMember
	bytes   int64
}

// pendingMember is what has become of a member. Bytes that are nil are stored,
// unless it has gone.
type pendingMember struct {
	version string
	sum     store.Sum
	bytes   []byte
	gone    bool
}

// memberCost is what a pending member takes in memory, besides its strings and
// bytes: about, for a map entry of 88 bytes.
const memberCost = 144

// headerCost is what a pending view takes without members: about, with a key and a blob.
const headerCost = 1 << 10

func newPending() *pending {
	return &pending{views: map[store.ID]*pendingView{}, pairs: map[pairKey]store.Pair{}}
}

func (p *pending) empty() bool { return len(p.views) == 0 && len(p.pairs) == 0 }

// add puts a change behind those that are there. It returns ErrConflict, and
// leaves things as they were, if the change does not start where they end.
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
	return nil
}

// then returns what a change makes of what is pending for its view, nil if that is nothing.
func (v *pendingView) then(c *store.Change) (*pendingView, error) {
	if c.Op == store.MarkStale && v != nil && v.change.Op == store.Drop {
		return v, nil
	}
	if c.Op == store.Update && v != nil {
		return v.updated(c)
	}
	after := &pendingView{change: *c, members: make(map[string]pendingMember, len(c.Put)), bytes: headerCost}
	after.change.Put, after.change.Delete = nil, nil
	if c.Op == store.Update || c.Op == store.Replace {
		after.fill(c, v)
	}
	return after, nil
}

// updated is v with an Update behind it.
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

// fill applies a change's members. Where it gives no bytes, and they are pending
// in before, they come from there.
func (v *pendingView) fill(c *store.Change, before *pendingView) {
	for _, name := range c.Delete {
		v.remove(name)
		if v.change.Op == store.Update {
			v.set(name, pendingMember{gone: true})
		}
	}
	for i := range c.Put {
		o := &c.Put[i]
		m := pendingMember{version: o.ResourceVersion, sum: o.Sum, bytes: o.Bytes}
		if m.bytes == nil && before != nil && before.change.Header.Scope == c.Header.Scope {
			if old := before.members[o.Name]; old.version == m.version && old.sum == m.sum {
				m.bytes = old.bytes
			}
		}
		v.remove(o.Name)
		v.set(o.Name, m)
	}
}

func (v *pendingView) set(name string, m pendingMember) {
	v.members[name] = m
	v.bytes += m.cost(name)
}

func (v *pendingView) remove(name string) {
	if m, ok := v.members[name]; ok {
		delete(v.members, name)
		v.bytes -= m.cost(name)
	}
}

func (m *pendingMember) cost(name string) int64 {
	return int64(len(name)+len(m.version)+len(m.bytes)) + memberCost
}

// set notes a key's new value.
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

// follow puts all of next behind p. It returns the views for which that cannot
// be: they are left as p has them.
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

// lose replaces what is pending for a view.
func (p *pending) lose(id store.ID, op store.Op) {
	p.remove(id)
	p.add(&store.Change{ID: id, Op: op}) //nolint:errcheck // nothing is there to be refused by
}

func (p *pending) remove(id store.ID) {
	if v := p.views[id]; v != nil {
		p.bytes -= v.bytes
		delete(p.views, id)
	}
}

// largest is the view whose loss frees the most.
func (p *pending) largest() (id store.ID, ok bool) {
	var most int64
	for candidate, v := range p.views {
		if len(v.members) > 0 && v.bytes > most {
			id, most, ok = candidate, v.bytes, true
		}
	}
	return id, ok
}

// object looks for an object's bytes.
func (p *pending) object(k store.ObjectKey) ([]byte, bool) {
	for _, v := range p.views {
		if v.change.Header.Scope != k.Scope {
			continue
		}
		if m, ok := v.members[k.Name]; ok && !m.gone && m.version == k.ResourceVersion && m.sum == k.Sum && m.bytes != nil {
			return m.bytes, true
		}
	}
	return nil, false
}

func (v *pendingView) batched() store.Change {
	c := v.change
	for _, name := range slices.Sorted(maps.Keys(v.members)) {
		m := v.members[name]
		if m.gone {
			c.Delete = append(c.Delete, name)
		} else {
			c.Put = append(c.Put, store.Object{Name: name, ResourceVersion: m.version, Sum: m.sum, Bytes: m.bytes})
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
