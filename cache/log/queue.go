package log

import (
	"cmp"
	"maps"
	"slices"
)

// queue is the changes that wait for a commit: of each row its latest state. It is not safe for concurrent use.
type queue struct {
	tables map[tableID]*queuedTable
	bodies map[Sum]*queuedBody
	size   int64 // of memory, in bytes, approximately
	listed bool  // a table has got other rows as a whole
	read   bool  // Readers are open: bodies whose rows were replaced meanwhile are kept, and written
}

type queuedTable struct {
	cleared bool
	rows    map[string]*Row // nil if the row was removed
}

// queuedBody is a body that rows in the queue need. Its Bytes are nil if it was not given.
type queuedBody struct {
	Body
	rows int
}

// rowCost is the memory that a row in a queue takes besides its strings and bodies, and tableCost that of a table, in
// bytes, approximately.
const (
	rowCost   = 160
	tableCost = 512
)

func newQueue() *queue {
	return &queue{tables: map[tableID]*queuedTable{}, bodies: map[Sum]*queuedBody{}}
}

func (q *queue) empty() bool { return len(q.tables) == 0 }

func cost(key string, r *Row) int64 {
	n := int64(rowCost + len(key))
	if r != nil {
		n += int64(len(r.Value) + len(r.Bodies)*(len(Sum{})+24))
	}
	return n
}

// add appends a change.
func (q *queue) add(c *Change) {
	t := q.tables[c.id()]
	if t == nil {
		t = &queuedTable{rows: map[string]*Row{}}
		q.tables[c.id()] = t
		q.size += tableCost
	}
	if c.Clear {
		before := t.rows
		t.cleared, t.rows = true, make(map[string]*Row, len(c.Put))
		q.listed = q.listed || len(c.Put) > 0
		defer func() { // what the rows that are put share with these stays
			for key, r := range before {
				q.size -= cost(key, r)
				q.release(r)
			}
		}()
	}
	for _, key := range c.Delete {
		q.set(t, key, nil)
	}
	for i := range c.Put {
		q.set(t, c.Put[i].Key, &c.Put[i])
	}
}

// set sets a row, or removes it if r is nil.
func (q *queue) set(t *queuedTable, key string, r *Row) {
	q.retain(r)
	if old, ok := t.rows[key]; ok {
		q.size -= cost(key, old)
		q.release(old)
		delete(t.rows, key)
	}
	if r != nil || !t.cleared {
		t.rows[key] = r
		q.size += cost(key, r)
	}
}

func (q *queue) retain(r *Row) {
	if r == nil {
		return
	}
	for _, b := range r.Bodies {
		known := q.bodies[b.Sum]
		if known == nil {
			known = &queuedBody{Body: Body{Sum: b.Sum}}
			q.bodies[b.Sum] = known
		}
		if known.rows++; known.Bytes == nil {
			known.Bytes = b.Bytes
			q.size += int64(len(b.Bytes))
		}
	}
}

func (q *queue) release(r *Row) {
	if r == nil {
		return
	}
	for _, b := range r.Bodies {
		known := q.bodies[b.Sum]
		if known.rows--; known.rows == 0 && (!q.read || known.Bytes == nil) {
			q.forget(known)
		}
	}
}

func (q *queue) forget(b *queuedBody) {
	delete(q.bodies, b.Sum)
	q.size -= int64(len(b.Bytes))
}

// follow appends all of next.
func (q *queue) follow(next *queue) {
	for _, c := range next.changes() {
		for i := range c.Put {
			r := &c.Put[i]
			r.Bodies = slices.Clone(r.Bodies)
			for j := range r.Bodies {
				r.Bodies[j] = next.bodies[r.Bodies[j].Sum].Body
			}
		}
		q.add(&c)
	}
	q.listed = q.listed || next.listed
}

// shrink forgets what only Readers need, and then gives up tables of the owner, the largest first, until the queue has at
// most max bytes. A table that is given up is empty after the next commit. shrink returns which these are.
func (q *queue) shrink(most int64) (givenUp []string) {
	if q.size > most {
		for _, b := range q.bodies {
			if b.rows == 0 {
				q.forget(b)
			}
		}
	}
	for q.size > most {
		largest, ok := q.largest()
		if !ok {
			break // only rows are left
		}
		read := q.read
		q.read = false
		q.add(&Change{Table: largest, Clear: true})
		q.read = read
		givenUp = append(givenUp, largest)
	}
	return givenUp
}

// largest returns the owner's table of which the most bytes of bodies wait.
func (q *queue) largest() (table string, ok bool) {
	most := 0
	for id, t := range q.tables {
		size := 0
		for _, r := range t.rows {
			for i := 0; r != nil && i < len(r.Bodies); i++ {
				size += len(q.bodies[r.Bodies[i].Sum].Bytes)
			}
		}
		if !id.own && size > most {
			table, most, ok = id.name, size, true
		}
	}
	return table, ok
}

// changes returns all changes, in an order that does not depend on chance.
func (q *queue) changes() []Change {
	all := make([]Change, 0, len(q.tables))
	for id, t := range q.tables {
		c := Change{Table: id.name, own: id.own, Clear: t.cleared}
		for _, key := range slices.Sorted(maps.Keys(t.rows)) {
			if r := t.rows[key]; r == nil {
				c.Delete = append(c.Delete, key)
			} else {
				c.Put = append(c.Put, *r)
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Change) int { return cmp.Compare(a.Table, b.Table) }) // one of each may have a name
	return all
}

// given returns the bodies of changes that are in the queue, in the order of the rows, and then those without rows.
func (q *queue) given(changes []Change) []*Body {
	all := make([]*Body, 0, len(q.bodies))
	seen := make(map[Sum]bool, len(q.bodies))
	take := func(sum Sum) {
		if b := q.bodies[sum]; b != nil && b.Bytes != nil && !seen[sum] {
			seen[sum] = true
			all = append(all, &b.Body)
		}
	}
	for sum := range sums(changes) {
		take(sum)
	}
	if len(all) < len(q.bodies) {
		for sum := range q.bodies {
			take(sum)
		}
	}
	return all
}

// body returns the bytes of a body that waits, or nil. q may be nil.
func (q *queue) body(sum Sum) []byte {
	if q == nil || q.bodies[sum] == nil {
		return nil
	}
	return q.bodies[sum].Bytes
}
