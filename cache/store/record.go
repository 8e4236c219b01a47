package store

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"time"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// commitRecord is what one commit changes: a frame of the log has it, and one of the index.
type commitRecord struct {
	number uint64
	from   int64 // where the first frame of this commit begins in the log
	at     int64 // where the frame with this record begins there
	views  []viewRecord
	pairs  []pairRecord
}

// viewRecord is a change of a view. The header has the members that there are after it.
type viewRecord struct {
	header  View
	dropped bool
	cleared bool // no member stays that is not put
	remove  []string
	put     []*object
}

type pairRecord struct {
	table, key string
	value      *value // nil: deleted
}

var errLostCommit = errors.New("an earlier change of it was lost")

const (
	recordView byte = 1 + iota
	recordDrop
	recordPair
)

func (r *commitRecord) encode() []byte {
	b := binary.AppendUvarint(nil, r.number)
	b = binary.AppendUvarint(b, uint64(r.from))
	b = binary.AppendUvarint(b, uint64(r.at))
	for i := range r.views {
		b = r.views[i].append(b)
	}
	for _, p := range r.pairs {
		b = append(b, recordPair)
		b = seal.AppendBytes(seal.AppendBytes(b, p.table), p.key)
		switch {
		case p.value == nil:
			b = append(b, 0)
		case p.value.size == 0:
			b = seal.AppendBytes(append(b, 1), p.value.small)
		default:
			b = p.value.append(append(b, 2))
		}
	}
	return b
}

func (v *viewRecord) append(b []byte) []byte {
	if v.dropped {
		return append(append(b, recordDrop), v.header.ID[:]...)
	}
	b = append(append(b, recordView), v.header.ID[:]...)
	b = v.header.append(b)
	var cleared byte
	if v.cleared {
		cleared = 1
	}
	b = binary.AppendUvarint(append(b, cleared), uint64(len(v.remove)))
	for _, name := range v.remove {
		b = seal.AppendBytes(b, name)
	}
	b = binary.AppendUvarint(b, uint64(len(v.put)))
	for _, o := range v.put {
		b = seal.AppendBytes(seal.AppendBytes(b, o.name), o.version)
		b = binary.AppendUvarint(append(b, o.sum[:]...), uint64(o.size))
		b = o.place.append(b)
	}
	return b
}

func (p place) append(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.at)), uint64(p.size))
}

func readPlace(r *seal.Fields) place { return place{at: int64(r.Uint()), size: uint32(r.Uint())} }

// decode decodes the record of a commit. Scopes are interned in c.
func (c *contents) decode(payload []byte) (*commitRecord, error) {
	f := seal.Fields{Rest: payload}
	r := &commitRecord{number: f.Uint(), from: int64(f.Uint()), at: int64(f.Uint())}
	for f.Err == nil && len(f.Rest) > 0 {
		switch kind := f.Byte(); kind {
		case recordView, recordDrop:
			r.views = append(r.views, c.decodeView(&f, kind == recordDrop))
		case recordPair:
			r.pairs = append(r.pairs, decodePair(&f))
		default:
			return nil, corrupt(errors.New("a change of an unknown kind"))
		}
	}
	if f.Err != nil {
		return nil, corrupt(f.Err)
	}
	return r, nil
}

func (c *contents) decodeView(f *seal.Fields, dropped bool) (v viewRecord) {
	copy(v.header.ID[:], f.Take(len(ID{})))
	if v.dropped = dropped; dropped {
		return v
	}
	c.readHeader(&v.header, f)
	v.cleared = f.Byte() == 1
	for range f.Count() {
		v.remove = append(v.remove, string(f.Bytes()))
	}
	for range f.Count() {
		o := &object{scope: v.header.Scope, name: string(f.Bytes()), version: string(f.Bytes())}
		copy(o.sum[:], f.Take(len(o.sum)))
		o.size, o.place = int(f.Uint()), readPlace(f)
		v.put = append(v.put, o)
	}
	return v
}

func decodePair(f *seal.Fields) pairRecord {
	p := pairRecord{table: string(f.Bytes()), key: string(f.Bytes())}
	switch f.Byte() {
	case 0:
	case 1:
		p.value = &value{small: f.Copied()}
	default:
		p.value = &value{place: readPlace(f)}
	}
	return p
}

const (
	flagComplete = 1 << iota
	flagStale
)

func (v *View) append(b []byte) []byte {
	var flags uint64
	if v.Complete {
		flags |= flagComplete
	}
	if v.Stale {
		flags |= flagStale
	}
	b = binary.AppendUvarint(b, flags)
	b = seal.AppendBytes(b, v.Key)
	b = seal.AppendBytes(b, v.Scope)
	b = seal.AppendBytes(b, v.ResourceVersion)
	b = seal.AppendBytes(b, v.Blob)
	b = binary.AppendUvarint(b, uint64(max(v.LastUsed.UnixMilli(), 0)))
	b = binary.AppendUvarint(b, uint64(v.Members))
	b = binary.AppendUvarint(b, uint64(v.Bytes))
	return binary.AppendUvarint(b, uint64(v.digest))
}

func (c *contents) readHeader(v *View, r *seal.Fields) {
	flags := r.Uint()
	v.Header = Header{
		Complete:        flags&flagComplete != 0,
		Key:             r.Copied(),
		Scope:           c.scope(r.Bytes()),
		ResourceVersion: string(r.Bytes()),
		Blob:            r.Copied(),
		LastUsed:        time.UnixMilli(int64(r.Uint())),
	}
	v.Stale = flags&flagStale != 0
	v.Members, v.Bytes, v.digest = int(r.Uint()), int64(r.Uint()), digest(r.Uint())
}

// digest is the sum of hashes of a view's members, in any order. It shows that a change was lost.
type digest uint64

// count adds a member to the view's totals, or with sign -1 removes it.
func (v *View) count(o *object, sign int) {
	v.Members += sign
	v.Bytes += int64(sign) * int64(len(o.name)+len(o.version)+o.size)
	h := fnv.New64a()
	for _, part := range []string{o.name, "\x00", o.version, "\x00", string(o.sum[:])} {
		h.Write([]byte(part))
	}
	v.digest += digest(sign) * digest(h.Sum64())
}
