package pagecheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// A bbolt page, in the byte order of the machine, is a header {id uint64, flags uint16, count
// uint16, overflow uint32}, then count elements, then their data. An element of a leaf is {flags,
// position, key size, value size uint32}, and of a branch {position, key size uint32, page
// uint64}; positions are relative to the element. The header of a meta page is followed by
// {magic, version, page size, flags uint32, root page, root sequence, freelist page, high-water
// mark, transaction, checksum uint64}.
const (
	pageHeader  = 16
	pageElement = 16
	metaSize    = 64

	pageBranch   = 0x01
	pageLeaf     = 0x02
	pageFreelist = 0x10

	elementBucket = 0x01 // the value is {root page, sequence uint64}, then an inline page if root is 0

	metaMagic   = 0xED0CDAED
	metaVersion = 2

	// maxDepth is larger than the depth of a tree of 2^64 pages.
	maxDepth = 64
)

var native = binary.NativeEndian

// page is a page with its overflow pages.
type page struct {
	flags    uint16
	count    int
	overflow uint64
	data     []byte
}

func parsePage(b []byte) (page, error) {
	if len(b) < pageHeader {
		return page{}, errShort
	}
	return page{
		flags:    native.Uint16(b[8:]),
		count:    int(native.Uint16(b[10:])),
		overflow: uint64(native.Uint32(b[12:])),
		data:     b,
	}, nil
}

// check checks what the methods below, and bbolt, rely on. Keys must be from low to below high.
func (p page) check(levels int, low, high []byte) error {
	want := uint16(pageLeaf)
	if levels > 0 {
		want = pageBranch
	}
	if p.flags != want {
		return fmt.Errorf("its flags are %#x, not %#x", p.flags, want)
	}
	if want == pageBranch && p.count == 0 {
		return errors.New("a branch to nowhere")
	}
	if pageHeader+p.count*pageElement > len(p.data) {
		return errShort
	}
	var last []byte
	for i := range p.count {
		at, key, value := p.element(i)
		if at+key+value > uint64(len(p.data)) || at < uint64(pageHeader+p.count*pageElement) {
			return fmt.Errorf("element %d is outside", i)
		}
		k := p.key(i)
		if i > 0 && bytes.Compare(last, k) >= 0 {
			return fmt.Errorf("element %d is out of order", i)
		}
		// bbolt ignores the key of the first child of a branch.
		first := levels > 0 && i == 0
		if !first && low != nil && bytes.Compare(k, low) < 0 || high != nil && bytes.Compare(k, high) >= 0 {
			return fmt.Errorf("element %d belongs to another page", i)
		}
		last = k
	}
	return nil
}

// element returns the position of the key of element i in data, the key's size, and the size of
// the value, which follows the key.
func (p page) element(i int) (at, key, value uint64) {
	e := p.data[pageHeader+i*pageElement:]
	base := uint64(pageHeader + i*pageElement)
	if p.flags == pageBranch {
		return base + uint64(native.Uint32(e)), uint64(native.Uint32(e[4:])), 0
	}
	return base + uint64(native.Uint32(e[4:])), uint64(native.Uint32(e[8:])), uint64(native.Uint32(e[12:]))
}

func (p page) key(i int) []byte {
	at, key, _ := p.element(i)
	return p.data[at : at+key]
}

func (p page) value(i int) []byte {
	at, key, value := p.element(i)
	return p.data[at+key : at+key+value]
}

func (p page) child(i int) uint64 { return native.Uint64(p.data[pageHeader+i*pageElement+8:]) }

func (p page) isBucket(i int) bool {
	return native.Uint32(p.data[pageHeader+i*pageElement:])&elementBucket != 0
}
