package store

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

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
	b = seal.AppendBytes(b, v.Key)
	b = seal.AppendBytes(b, v.Scope)
	b = seal.AppendBytes(b, v.ResourceVersion)
	b = seal.AppendBytes(b, v.Blob)
	b = binary.AppendUvarint(b, uint64(max(v.LastUsed.UnixMilli(), 0)))
	b = binary.AppendUvarint(b, uint64(v.Members))
	b = binary.AppendUvarint(b, uint64(v.Bytes))
	return binary.AppendUvarint(b, uint64(v.digest))
}

func decodeView(id ID, payload []byte) (View, error) {
	r := seal.Fields{Rest: payload}
	flags := r.Uint()
	v := View{
		ID: id,
		Header: Header{
			Complete:        flags&flagComplete != 0,
			Key:             r.Copied(),
			Scope:           string(r.Bytes()),
			ResourceVersion: string(r.Bytes()),
			Blob:            r.Copied(),
			LastUsed:        time.UnixMilli(int64(r.Uint())),
		},
		Stale:   flags&flagStale != 0,
		Members: int(r.Uint()),
		Bytes:   int64(r.Uint()),
		digest:  digest(r.Uint()),
	}
	if r.Err != nil {
		return View{}, corrupt(r.Err)
	}
	return v, nil
}

func (m *Member) encode() []byte {
	b := seal.AppendBytes(binary.AppendUvarint(nil, uint64(m.Size)), m.ResourceVersion)
	return append(b, m.Sum[:]...)
}

func decodeMember(name, payload []byte) (Member, error) {
	r := seal.Fields{Rest: payload}
	m := Member{Name: string(name), Size: int(r.Uint()), ResourceVersion: string(r.Bytes())}
	if copy(m.Sum[:], r.Rest) != len(m.Sum) {
		r.Err = seal.ErrShort
	}
	if r.Err != nil {
		return Member{}, corrupt(r.Err)
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
