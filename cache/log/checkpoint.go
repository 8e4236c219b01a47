package log

import (
	"maps"
	"slices"
)

const (
	// dueBytes and dueTimes are after how many bytes a checkpoint is due: what a start reads behind the last one.
	dueBytes = 16 << 20
	dueTimes = 16 // its own size
	// growBytes is how much more than half of a file may be needless before it is replaced, in bytes.
	growBytes = 8 << 20
	// maxPart is about how large a part of a checkpoint becomes, in bytes, unless one row is larger.
	maxPart = 256 << 10
	// maxRows and maxPlaced are how many rows and places of bodies are added to a part at once.
	maxRows   = 512
	maxPlaced = 1024
)

// checkpoint is all state, as parts that are sealed one by one.
type checkpoint struct {
	parts [][]byte
	live  map[Sum]bool
	order []Sum // of live: that in which lists read bodies
	size  int64 // of parts, in bytes
	// needed is the size of all live bodies in the file, in bytes.
	needed  int64
	garbage bool // something that was deleted may be in the file
}

// collect asks the owner for its rows, one table after the other. Together with what waits for a commit after that,
// it is the exact state: see State. No lock is held.
func (l *Log) collect() *checkpoint {
	c := &checkpoint{live: map[Sum]bool{}}
	for _, name := range l.state.Tables() {
		c.add(Change{Table: name, Put: l.state.Rows(name)})
	}
	l.mu.RLock()
	var own []Change
	for name, rows := range l.tables {
		own = append(own, ownRows(name, rows))
	}
	l.mu.RUnlock()
	for _, t := range own {
		c.add(t)
	}
	return c
}

// add adds the rows of a table.
func (c *checkpoint) add(table Change) {
	c.needs([]Change{table})
	for rows := table.Put; len(rows) > 0; {
		n := min(len(rows), maxRows)
		table.Put = rows[:n]
		c.put(table.append([]byte{partRows}))
		rows = rows[n:]
	}
}

// needs adds the bodies of rows to the live ones.
func (c *checkpoint) needs(changes []Change) {
	for sum := range sums(changes) {
		if !c.live[sum] {
			c.live[sum] = true
			c.order = append(c.order, sum)
		}
	}
}

func (c *checkpoint) put(b []byte) {
	c.size += int64(len(b))
	if last := len(c.parts) - 1; last >= 0 && len(c.parts[last])+len(b) <= maxPart {
		c.parts[last] = append(c.parts[last], b...)
	} else {
		c.parts = append(c.parts, b)
	}
}

// name adds where the live bodies are in a file, and whether it has garbage.
func (l *Log) name(c *checkpoint, f *file) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	named := make([]placed, 0, min(len(c.order), maxPlaced))
	for _, sum := range c.order {
		if p, ok := f.index[sum]; ok {
			c.needed += int64(p.size)
			if named = append(named, placed{sum, p}); len(named) == maxPlaced {
				c.put(appendPlaced(nil, named))
				named = named[:0]
			}
		}
	}
	c.put(appendPlaced(nil, named))
	if c.garbage {
		c.put([]byte{partMeta, 1})
	}
}

// write writes the parts as those of the checkpoint before a commit.
func (c *checkpoint) write(w *writer, number uint64) {
	for i, part := range c.parts {
		f := frame{kind: framePart, number: number, part: uint32(i)}
		if i == len(c.parts)-1 {
			f.kind = frameLast
		}
		w.frame(f, w.seal(f, part))
	}
}

// onlyLiveLocked forgets the bodies of a file that a checkpoint does not name: a start will not know them, so no row may
// need one of them from now on. Readers may. Log.mu must be held since what waits was taken for the commit behind
// the checkpoint.
func (c *checkpoint) onlyLiveLocked(f *file) {
	if f.readers == 0 {
		f.dead = nil
	} else if f.dead == nil {
		f.dead = map[Sum]place{}
	}
	maps.DeleteFunc(f.index, func(sum Sum, p place) bool {
		if !c.live[sum] && f.dead != nil {
			f.dead[sum] = p
		}
		c.garbage = c.garbage || !c.live[sum]
		return !c.live[sum]
	})
}

// isDue reports whether a checkpoint is due.
func (l *Log) isDue(f *file) bool {
	return f.end-f.newest().commits > max(l.dueBytes, l.dueTimes*f.size)
}

// mayHaveGrown reports whether it is time to find out what of the file is needed.
func (l *Log) mayHaveGrown(f *file, changes []Change) bool {
	return f.end > l.growBytes && (l.hasGrown(f) || slices.ContainsFunc(changes, func(c Change) bool { return c.Clear }))
}

// hasGrown reports whether more than half of the file is not needed, and that is more than growBytes.
func (l *Log) hasGrown(f *file) bool {
	needless := f.end - f.needed
	return needless > f.needed && needless > l.growBytes
}
