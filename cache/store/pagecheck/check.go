// Package pagecheck checks the pages of a bbolt file before bbolt opens it.
//
// bbolt trusts its pages: a damaged one can make it recurse until the stack is full, which ends
// the process and cannot be recovered. bbolt's own Tx.Check needs an open file, and follows
// pages in the same way. So this package reads the file, which returns errors where a memory
// map would fault, and follows no page twice.
//
// It checks the structure: page numbers, kinds and elements, that keys are in order, and that
// each page is used once. It does not check values.
package pagecheck

import (
	"errors"
	"os"
)

var (
	errShort    = errors.New("cut short")
	errChecksum = errors.New("its checksum is wrong")
)

// Damage is the error for a file that bbolt has not written.
type Damage struct{ cause error }

func (d *Damage) Error() string { return d.cause.Error() }
func (d *Damage) Unwrap() error { return d.cause }

// File checks a file, to which bbolt must not write meanwhile. With full it reads all pages;
// otherwise inner pages and the leaves of buckets that contain buckets, which are the root and
// the top-level buckets named parents. It returns a *Damage, or the error of opening the file. An
// empty file is valid: bbolt creates its contents.
func File(path string, full bool, parents ...string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	p := &pages{file: f, full: full, parents: parents}
	if err := p.walkFile(uint64(info.Size())); err != nil {
		return &Damage{err}
	}
	return nil
}
