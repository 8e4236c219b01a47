package store

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// What payloads are made of: unsigned varints, and bytes behind their length.

func appendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// reader takes a payload apart. After an error all it returns is zero.
type reader struct {
	b   []byte
	err error
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.err = nil, errShort
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.b, r.err = nil, errShort
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// copied is bytes that outlive the transaction.
func (r *reader) copied() []byte {
	if v := r.bytes(); len(v) > 0 {
		return append([]byte(nil), v...)
	}
	return nil
}

const (
	flagComplete = 1 << iota
	flagStale
)

func (v *View) encode() []byte {
	var flags uint64
	if v.Complete {
		flags |= flagComplete
	}
	if v.Stale {
		flags |= flagStale
	}
	b := binary.AppendUvarint(nil, flags)
	b = appendBytes(b, v.Key)
	b = appendBytes(b, v.Scope)
	b = appendBytes(b, v.ResourceVersion)
	b = appendBytes(b, v.Blob)
	b = binary.AppendUvarint(b, uint64(max(v.LastUsed.UnixMilli(), 0)))
	b = binary.AppendUvarint(b, uint64(v.Members))
	b = binary.AppendUvarint(b, uint64(v.Bytes))
	return binary.AppendUvarint(b, uint64(v.digest))
}

func decodeView(id ID, payload []byte) (View, error) {
	r := reader{b: payload}
	flags := r.uint()
	v := View{
		ID: id,
		Header: Header{
			Complete:        flags&flagComplete != 0,
			Key:             r.copied(),
			Scope:           string(r.bytes()),
			ResourceVersion: string(r.bytes()),
			Blob:            r.copied(),
			LastUsed:        time.UnixMilli(int64(r.uint())),
		},
		Stale:   flags&flagStale != 0,
		Members: int(r.uint()),
		Bytes:   int64(r.uint()),
		digest:  digest(r.uint()),
	}
	if r.err != nil {
		return View{}, corrupt(r.err)
	}
	return v, nil
}

func (m *Member) encode() []byte {
	b := appendBytes(binary.AppendUvarint(nil, uint64(m.Size)), m.ResourceVersion)
	return append(b, m.Sum[:]...)
}

func decodeMember(name, payload []byte) (Member, error) {
	r := reader{b: payload}
	m := Member{Name: string(name), Size: int(r.uint()), ResourceVersion: string(r.bytes())}
	if copy(m.Sum[:], r.b) != len(m.Sum) {
		r.err = errShort
	}
	if r.err != nil {
		return Member{}, corrupt(r.err)
	}
	return m, nil
}

// digest is a sum over hashes of a set's elements: it changes with each element
// that comes or goes, in any order. It finds damage, not malice.
type digest uint64

func (d *digest) add(parts ...string)    { *d += element(parts) }
func (d *digest) remove(parts ...string) { *d -= element(parts) }

func element(parts []string) digest {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return digest(h.Sum64())
}

// count adds a member to the view's totals, or takes it away.
func (v *View) count(m *Member, sign int) {
	v.Members += sign
	v.Bytes += int64(sign) * int64(len(m.Name)+len(m.ResourceVersion)+m.Size)
	sum := string(m.Sum[:])
	if sign > 0 {
		v.digest.add(m.Name, m.ResourceVersion, sum)
	} else {
		v.digest.remove(m.Name, m.ResourceVersion, sum)
	}
}
