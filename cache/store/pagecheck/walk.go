package pagecheck

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
	"slices"
)

// pages is a walk over the pages of a file.
type pages struct {
	file io.ReaderAt
	size uint64   // of a page
	high uint64   // the first page that is not in use
	seen []uint64 // bit set of used pages

	full    bool
	parents []string
}

// meta is the used part of a meta page.
type meta struct{ pageSize, root, freelist, high, txid uint64 }

func (p *pages) walkFile(size uint64) error {
	m, err := p.newestMeta()
	if err != nil {
		return err
	}
	if m.high*p.size > size {
		return fmt.Errorf("the file has %d bytes of %d", size, m.high*p.size)
	}
	p.high = m.high
	p.seen = make([]uint64, m.high/64+1)
	if err := p.mark(0, 1); err != nil { // the meta pages
		return err
	}
	if err := p.bucket(m.root, "", 0); err != nil {
		return err
	}
	return p.freelist(m.freelist)
}

// newestMeta returns the meta page that bbolt will use. The first meta page has the size of all
// pages; if it is damaged, the second is searched for.
func (p *pages) newestMeta() (meta, error) {
	first, err := p.meta(0)
	if err == nil {
		p.size = first.pageSize
		second, err := p.meta(int64(p.size))
		if err == nil && second.pageSize == p.size && second.txid > first.txid {
			return second, nil
		}
		return first, nil
	}
	for size := uint64(1 << 10); size <= 1<<16; size <<= 1 {
		if second, err := p.meta(int64(size)); err == nil && second.pageSize == size {
			p.size = size
			return second, nil
		}
	}
	return meta{}, fmt.Errorf("both meta pages are damaged: %w", err)
}

func (p *pages) meta(at int64) (meta, error) {
	var b [pageHeader + metaSize]byte
	if _, err := p.file.ReadAt(b[:], at); err != nil {
		return meta{}, err
	}
	body := b[pageHeader:]
	h := fnv.New64a()
	h.Write(body[:metaSize-8])
	if native.Uint32(body) != metaMagic || native.Uint32(body[4:]) != metaVersion || native.Uint64(body[56:]) != h.Sum64() {
		return meta{}, errChecksum
	}
	m := meta{
		pageSize: uint64(native.Uint32(body[8:])),
		root:     native.Uint64(body[16:]),
		freelist: native.Uint64(body[32:]),
		high:     native.Uint64(body[40:]),
		txid:     native.Uint64(body[48:]),
	}
	if bits.OnesCount64(m.pageSize) != 1 || m.pageSize < 1<<10 || m.pageSize > 1<<16 || m.high > 1<<40 {
		return meta{}, errChecksum
	}
	return m, nil
}

// bucket walks the tree of a bucket. path consists of the names of buckets; the root's is "".
func (p *pages) bucket(root uint64, path string, depth int) error {
	if depth > 4 {
		return fmt.Errorf("bucket %q: more than 4 levels of buckets", path)
	}
	levels, err := p.levels(root)
	if err != nil {
		return fmt.Errorf("bucket %q: %w", path, err)
	}
	w := &walk{pages: p, path: path, depth: depth}
	w.leaves = p.full || path == "" || slices.Contains(p.parents, path[1:])
	if err := w.node(root, levels, nil, nil); err != nil {
		return fmt.Errorf("bucket %q: %w", path, err)
	}
	return nil
}

// levels returns the number of branches above the leaves. It is the same everywhere in a tree, so
// leaves are recognized without reading them.
func (p *pages) levels(root uint64) (int, error) {
	id := root
	for levels := range maxDepth {
		page, err := p.read(id)
		if err != nil {
			return 0, err
		}
		if page.flags != pageBranch {
			return levels, nil
		}
		if page.count == 0 {
			return 0, fmt.Errorf("page %d: a branch to nowhere", id)
		}
		id = page.child(0)
	}
	return 0, fmt.Errorf("page %d: its branches do not end", root)
}

// walk is a walk over the tree of one bucket.
type walk struct {
	*pages
	path   string
	depth  int
	leaves bool // read leaves
}

// node walks a page and its children. Keys must be from low to below high; nil is no limit.
func (w *walk) node(id uint64, levels int, low, high []byte) error {
	if levels == 0 && !w.leaves {
		return w.mark(id, 0)
	}
	page, err := w.read(id)
	if err != nil {
		return err
	}
	if err := w.mark(id, page.overflow); err != nil {
		return err
	}
	if err := page.check(levels, low, high); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if levels == 0 {
		return w.buckets(page)
	}
	for i := range page.count {
		from, to := low, high
		if i > 0 {
			from = page.key(i)
		}
		if i+1 < page.count {
			to = page.key(i + 1)
		}
		if err := w.node(page.child(i), levels-1, from, to); err != nil {
			return err
		}
	}
	return nil
}

// buckets walks the buckets in a leaf.
func (w *walk) buckets(leaf page) error {
	for i := range leaf.count {
		if !leaf.isBucket(i) {
			continue
		}
		path := w.path + "/" + string(leaf.key(i))
		value := leaf.value(i)
		if len(value) < 16 {
			return fmt.Errorf("bucket %q: %w", path, errShort)
		}
		root := native.Uint64(value)
		if root != 0 {
			if err := w.bucket(root, path, w.depth+1); err != nil {
				return err
			}
			continue
		}
		inline, err := parsePage(value[16:])
		if err == nil {
			err = inline.check(0, nil, nil)
		}
		if err != nil {
			return fmt.Errorf("bucket %q: %w", path, err)
		}
	}
	return nil
}

// mark marks a page and its overflow pages as used.
func (p *pages) mark(id, overflow uint64) error {
	for ; ; id++ {
		if id >= p.high {
			return fmt.Errorf("page %d is beyond the last, %d", id, p.high)
		}
		if p.seen[id/64]&(1<<(id%64)) != 0 {
			return fmt.Errorf("page %d is used twice", id)
		}
		p.seen[id/64] |= 1 << (id % 64)
		if overflow == 0 {
			return nil
		}
		overflow--
	}
}

// freelist checks that free pages are not in use.
func (p *pages) freelist(id uint64) error {
	page, err := p.read(id)
	if err != nil {
		return fmt.Errorf("freelist: %w", err)
	}
	if page.flags != pageFreelist {
		return fmt.Errorf("freelist: page %d is something else", id)
	}
	if err := p.mark(id, page.overflow); err != nil {
		return fmt.Errorf("freelist: %w", err)
	}
	ids, count := page.data[pageHeader:], uint64(page.count)
	if count == 0xFFFF { // the real count comes first
		count = native.Uint64(ids)
		ids = ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return fmt.Errorf("freelist: %w", errShort)
	}
	for i := range count {
		if err := p.mark(native.Uint64(ids[i*8:]), 0); err != nil {
			return fmt.Errorf("freelist: %w", err)
		}
	}
	return nil
}

// read reads a page with its overflow pages.
func (p *pages) read(id uint64) (page, error) {
	if id >= p.high {
		return page{}, fmt.Errorf("page %d is beyond the last, %d", id, p.high)
	}
	b := make([]byte, p.size)
	if _, err := p.file.ReadAt(b, int64(id*p.size)); err != nil {
		return page{}, fmt.Errorf("page %d: %w", id, err)
	}
	if self := native.Uint64(b); self != id {
		return page{}, fmt.Errorf("page %d says it is page %d", id, self)
	}
	if overflow := uint64(native.Uint32(b[12:])); overflow > 0 {
		if overflow >= p.high-id {
			return page{}, fmt.Errorf("page %d continues beyond the last, %d", id, p.high)
		}
		rest := make([]byte, overflow*p.size)
		if _, err := p.file.ReadAt(rest, int64((id+1)*p.size)); err != nil {
			return page{}, fmt.Errorf("page %d: %w", id, err)
		}
		b = append(b, rest...)
	}
	return parsePage(b)
}
