package store_test

import (
	"bytes"
	"encoding/binary"
	"iter"
	"testing"
)

// The parts of a bbolt page that tests damage; see package pagecheck.
const (
	pageSize  = 4096
	flagsAt   = 8
	countAt   = 10
	contentAt = 16

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
)

// pagesOf yields the pages of a kind in a file, by number. Changing them changes the file.
func pagesOf(file []byte, kind uint16) iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		for at := 2 * pageSize; at+pageSize <= len(file); at += pageSize {
			page := file[at : at+pageSize]
			id := binary.NativeEndian.Uint64(page)
			if id != uint64(at/pageSize) || binary.NativeEndian.Uint16(page[flagsAt:]) != kind {
				continue
			}
			if !yield(id, page) {
				return
			}
		}
	}
}

// objectLeaf is a page with objects, and the position of the first one's key.
type objectLeaf struct {
	page []byte
	key  int
}

func objectLeaves(t *testing.T, file []byte) (leaves []objectLeaf) {
	t.Helper()
	for _, page := range pagesOf(file, leafPage) {
		if key := bytes.Index(page, []byte(testScope+"\x00default/")); key >= 0 {
			leaves = append(leaves, objectLeaf{page, key})
		}
	}
	if len(leaves) == 0 {
		t.Fatal("no objects are in the file")
	}
	return leaves
}
