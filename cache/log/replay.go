package log

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// loader reads a file.
type loader struct {
	*Log
	file   *file
	all    bool                        // the state of the owner, too
	tables map[string]map[string]value // the log's own
	scan   scanner
	next   uint64      // number of the next commit
	tail   int64       // where the last tail ended that was not damaged
	held   *heldCommit // the last commit, while it is not known whether it counts
}

func (r *loader) replay() error {
	info, err := r.file.os.Stat()
	if err != nil {
		return err
	}
	r.scan = scanner{file: r.file.os, id: r.file.id, size: info.Size()}
	s, err := r.checkpoint()
	if err != nil {
		return err
	}
	r.next, r.file.end = s.number, s.commits
	if err := r.commits(s.commits); err != nil {
		return err
	}
	if named := r.file.newest().number; r.next <= named { // a slot is written after the sync of that commit
		r.lose(corrupt(fmt.Errorf("commits %d to %d of the cache", r.next, named)))
		r.next = named + 1
	}
	return nil
}

// checkpoint applies the newest checkpoint that is whole, or else what there is of the newest one, and
// returns its slot. Parts of a checkpoint that was written twice are taken from both.
func (r *loader) checkpoint() (s slot, err error) {
	a, b := r.file.slots[0], r.file.slots[1]
	if b.number > a.number {
		a, b = b, a
	}
	newest := &foundParts{}
	if err := r.parts(newest, a); err != nil {
		return a, err
	}
	if b.number == a.number {
		err = r.parts(newest, b)
	}
	if err != nil || newest.isWhole() {
		r.apply(newest)
		return a, err
	}
	r.file.unsound = true
	before := &foundParts{}
	if b.number > 0 && b.number < a.number {
		err = r.parts(before, b)
	}
	if err != nil || before.isWhole() {
		r.apply(before)
		return b, err
	}
	r.lose(corrupt(errors.New("a part of all that was known")))
	r.apply(newest)
	return a, nil
}

// foundParts are parts of a checkpoint.
type foundParts struct {
	parts map[uint32][]byte
	last  int // number of the last part, if it was found
}

func (p *foundParts) isWhole() bool { return len(p.parts) > 0 && len(p.parts) == p.last+1 }

// parts adds the parts of the checkpoint of a slot that are not damaged.
func (r *loader) parts(found *foundParts, s slot) error {
	if found.parts == nil {
		found.parts, found.last = map[uint32][]byte{}, -1
	}
	for r.scan.at = s.parts; ; {
		f, at, record, err := r.scan.next()
		if errors.Is(err, io.EOF) || err == nil && (f.isCommit() || f.number != s.number || at >= s.commits) {
			return nil
		}
		if err != nil {
			return err
		}
		payload, err := f.open(r.codec, r.file.id, record)
		if err != nil {
			continue // a part is damaged: another checkpoint may have it
		}
		if _, known := found.parts[f.part]; !known {
			found.parts[f.part] = slices.Clone(payload)
		}
		if f.kind == frameLast {
			found.last = int(f.part)
			return nil
		}
	}
}

// apply applies parts in their order.
func (r *loader) apply(p *foundParts) {
	for _, n := range slices.Sorted(maps.Keys(p.parts)) {
		part := p.parts[n]
		r.file.size += int64(len(part))
		err := readPart(part, r.change, func(b placed) { r.file.index[b.sum] = b.place }, func() { r.file.garbage = true })
		if err != nil {
			r.lose(err)
		}
	}
}

// change applies a change.
func (r *loader) change(c *Change) {
	r.file.garbage = r.file.garbage || c.Clear || len(c.Delete) > 0
	switch {
	case c.own:
		applyOwn(r.tables, c)
	case r.all:
		r.state.Apply(*c)
	}
}

func (r *loader) lose(cause error) {
	r.file.unsound = true
	wake(r.look)
	r.log.Warn("a part of the cache was damaged on disk: some changes are lost, and are read again from the cloud", "folder", r.dir, "err", cause)
	if r.all {
		r.state.Lost(cause)
	}
	for name, rows := range r.tables { // a row may have been deleted: a token that was revoked, an answer that is another one now
		if name != tableSalt && !slices.Contains(r.opts.Keep, name) {
			clear(rows)
		}
	}
}

// heldCommit is a commit of which bodies are missing: it counts if it was synced once.
type heldCommit struct {
	number uint64
	record *commitRecord
	bodies []placed // those that are whole
	end    int64
	holes  bool // what is missing was never written, as far as can be seen
	tail   bool // its second record is there, which is written last
}

// commits applies the commits from a place on.
func (r *loader) commits(from int64) error {
	r.scan.at, r.scan.skipped = from, false
	for {
		f, at, sealed, err := r.scan.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if !f.isCommit() || f.number < r.next {
			if f.kind == frameTail && f.number == r.next-1 {
				r.tail = r.scan.at
			}
			continue
		}
		payload, err := f.open(r.codec, r.file.id, sealed)
		if err != nil {
			r.scan.skipped = true
			continue
		}
		record, err := decodeCommit(slices.Clone(payload))
		if err != nil {
			r.scan.skipped = true
			continue
		}
		if err := r.commit(f, at, len(sealed), record); err != nil {
			return err
		}
	}
	if h := r.held; h != nil && (h.tail && !h.holes || h.number <= r.file.newest().number) { // it was synced, and damaged after that
		r.install(h)
	}
	r.file.unsound = r.file.unsound || r.tail != r.file.end // one of the two records of the last commit is damaged
	return nil
}

// commit applies one that was found, or holds it if bodies are missing.
func (r *loader) commit(f frame, at int64, sealed int, record *commitRecord) error {
	h := &heldCommit{number: f.number, record: record, tail: f.kind == frameTail, end: r.scan.at}
	if h.tail {
		r.tail = h.end
	}
	first := at - record.total
	if f.kind == frameFront {
		first = r.scan.at
		h.end = first + record.total + frameHeader + int64(sealed)
	}
	if err := r.bodies(h, first-int64(frameHeader+sealed), first); err != nil {
		return err
	}
	if f.kind == frameFront {
		r.scan.at = first + record.total
	}
	if held := r.held; held != nil && held.number == h.number {
		held.tail = held.tail || h.tail
		return nil
	} else if held != nil { // what follows shows that it was synced
		r.install(held)
	}
	if len(h.bodies) < len(record.bodies) {
		r.held = h
		return nil
	}
	r.install(h)
	return nil
}

// bodies verifies the bodies of a commit, which begins at one place, and of which the first body is at another one.
func (r *loader) bodies(h *heldCommit, begins, at int64) error {
	for _, b := range h.record.bodies {
		sealed, err := r.scan.peek(at, int(b.size))
		if err != nil {
			return err
		}
		if at >= headerSize && len(sealed) == int(b.size) && checkSum(whereBody(b.sum), sealed) == nil {
			h.bodies = append(h.bodies, placed{b.sum, place{at: at, size: b.size}})
		} else if hole, err := r.scan.hasHole(begins, at, int(b.size)); err != nil {
			return err
		} else if hole {
			h.holes = true
		}
		at += int64(b.size)
	}
	return nil
}

// install applies a commit that counts.
func (r *loader) install(h *heldCommit) {
	r.held = nil
	if h.number != r.next {
		r.lose(corrupt(fmt.Errorf("commits %d to %d of the cache", r.next, h.number-1)))
	}
	r.file.unsound = r.file.unsound || r.scan.skipped || len(h.bodies) < len(h.record.bodies)
	for _, b := range h.bodies {
		r.file.index[b.sum] = b.place
	}
	for i := range h.record.changes {
		r.change(&h.record.changes[i])
	}
	r.next, r.file.end = h.number+1, h.end
}
