// Package pagecheck looks at the pages of a bbolt file before bbolt opens it.
//
// bbolt trusts its pages: a damaged one can send it round in circles until the stack is
// full, which ends the process and cannot be caught. bbolt's own Tx.Check is no help: it
// needs a file that is open, and follows the pages in the same way. So they are looked at
// with plain reads, which fail where a map would fault, and no page is followed twice.
//
// Only the form of pages is checked: their numbers, kinds and elements, that keys are in
// order and that each page is used once. What the values are is for their owner to check.
package pagecheck

import (
	"errors"
	"os"
)

var (
	errShort    = errors.New("cut short")
	errChecksum = errors.New("its checksum is wrong")
)

// Damage is the error for a file that is not what bbolt writes.
type Damage struct{ cause error }

func (d *Damage) Error() string { return d.cause.Error() }
func (d *Damage) Unwrap() error { return d.cause }

// Options of File.
type Options struct {
	// Full is to read all pages. Otherwise inner pages are read, and the leaves of buckets
	// that hold buckets.
	Full bool
	// Parents are the top-level buckets that hold buckets.
	Parents [][]byte
}

func (o *Options) namesBuckets(path string) bool {
	for _, name := range o.Parents {
		if path == "/"+string(name) {
			return true
		}
	}
	return false
}

// File reads a bbolt file that nobody writes to meanwhile. It returns a *Damage if the
// file is not what bbolt writes, or the error of opening it. An empty file is fine: bbolt
// makes it a store.
func File(path string, o Options) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	p := &pages{file: f, opts: o}
	if err := p.walkFile(uint64(info.Size())); err != nil {
		return &Damage{err}
	}
	return nil
}
