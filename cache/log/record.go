package log

import (
	"encoding/binary"
	"errors"
	"iter"
)

// commitRecord is the record of a commit: the bodies between its two copies, in their order, and the changes. It is
// the same in any place: places follow from those of the copies.
type commitRecord struct {
	bodies  []sizedSum
	total   int64 // size of all bodies, in bytes
	changes []Change
}

type sizedSum struct {
	sum  Sum
	size uint32 // of the sealed body, in bytes
}

func (r *commitRecord) encode() []byte {
	b := binary.AppendUvarint(nil, uint64(len(r.bodies)))
	for _, body := range r.bodies {
		b = binary.AppendUvarint(append(b, body.sum[:]...), uint64(body.size))
	}
	for i := range r.changes {
		b = r.changes[i].append(b)
	}
	return b
}

// decodeCommit decodes a record. Values are parts of the payload.
func decodeCommit(payload []byte) (*commitRecord, error) {
	f := fields{Rest: payload}
	r := &commitRecord{}
	for range f.Count() {
		body := sizedSum{sum: readSum(&f), size: uint32(f.Uint())}
		r.bodies = append(r.bodies, body)
		r.total += int64(body.size)
	}
	for len(f.Rest) > 0 {
		r.changes = append(r.changes, readChange(&f))
	}
	if f.Err != nil {
		return nil, corrupt(f.Err)
	}
	return r, nil
}

const (
	flagClear = 1 << iota
	flagOwn
)

func (c *Change) append(b []byte) []byte {
	var flags byte
	if c.Clear {
		flags |= flagClear
	}
	if c.own {
		flags |= flagOwn
	}
	b = appendBytes(append(b, flags), c.Table)
	b = binary.AppendUvarint(b, uint64(len(c.Delete)))
	for _, key := range c.Delete {
		b = appendBytes(b, key)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Put)))
	for i := range c.Put {
		r := &c.Put[i]
		b = appendBytes(appendBytes(b, r.Key), r.Value)
		b = binary.AppendUvarint(b, uint64(len(r.Bodies)))
		for j := range r.Bodies {
			b = append(b, r.Bodies[j].Sum[:]...)
		}
	}
	return b
}

func readChange(f *fields) Change {
	flags := f.Byte()
	c := Change{Table: string(f.Bytes()), Clear: flags&flagClear != 0, own: flags&flagOwn != 0}
	for range f.Count() {
		c.Delete = append(c.Delete, string(f.Bytes()))
	}
	n := f.Count()
	c.Put = make([]Row, 0, min(n, maxRows)) // a part has no more at once
	for range n {
		r := Row{Key: string(f.Bytes()), Value: f.Bytes()}
		for range f.Count() {
			r.Bodies = append(r.Bodies, Body{Sum: readSum(f)})
		}
		c.Put = append(c.Put, r)
	}
	return c
}

func readSum(f *fields) (sum Sum) {
	copy(sum[:], f.Take(len(sum)))
	return sum
}

// sums are the bodies that the rows of changes need, in their order.
func sums(changes []Change) iter.Seq[Sum] {
	return func(yield func(Sum) bool) {
		for i := range changes {
			for j := range changes[i].Put {
				for k := range changes[i].Put[j].Bodies {
					if !yield(changes[i].Put[j].Bodies[k].Sum) {
						return
					}
				}
			}
		}
	}
}

// Kinds of what is in the parts of a checkpoint.
const (
	partRows   byte = 1 + iota // a Change, of rows that are put
	partBodies                 // sums, and where the bodies are
	partMeta                   // whether something that was deleted may be in the file
)

// placed is a body with its place.
type placed struct {
	sum Sum
	place
}

func appendPlaced(b []byte, bodies []placed) []byte {
	b = binary.AppendUvarint(append(b, partBodies), uint64(len(bodies)))
	for i := range bodies {
		b = append(b, bodies[i].sum[:]...)
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(bodies[i].at)), uint64(bodies[i].size))
	}
	return b
}

// readPart calls rows, or body, for what is in a part.
func readPart(payload []byte, rows func(*Change), body func(placed), garbage func()) error {
	f := fields{Rest: payload}
	for f.Err == nil && len(f.Rest) > 0 {
		switch f.Byte() {
		case partRows:
			if c := readChange(&f); f.Err == nil {
				rows(&c)
			}
		case partBodies:
			for range f.Count() {
				p := placed{sum: readSum(&f), place: place{at: int64(f.Uint()), size: uint32(f.Uint())}}
				if f.Err == nil {
					body(p)
				}
			}
		case partMeta:
			if f.Byte() == 1 {
				garbage()
			}
		default:
			return corrupt(errors.New("a part of a checkpoint of an unknown kind"))
		}
	}
	if f.Err != nil {
		return corrupt(f.Err)
	}
	return nil
}
