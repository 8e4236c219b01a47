package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// jsonList splits a list in JSON into its items and its envelope, which is the list without items:
//
//	{"kind":"PodList","apiVersion":"v1","metadata":{…},"items":[]}
type jsonList struct {
	max  int
	emit itemFunc

	position position
	envelope []byte

	held   []byte // an incomplete item
	span   span   // of held
	latest int    // size of the last item
	item   Meta   // of the item that is being emitted
}

// position is where in the list the next byte is.
type position uint8

const (
	inHead position = iota // the envelope up to the [ before items
	beforeFirst
	beforeItem // after a comma
	afterItem
	inTail // the envelope from the ] after items
)

func (l *jsonList) write(p []byte) error {
	for len(p) > 0 {
		n, err := l.next(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// next takes or holds what p begins with, and returns its length.
func (l *jsonList) next(p []byte) (n int, err error) {
	switch {
	case l.position == inHead:
		return l.head(p)
	case l.position == inTail:
		return l.hold(p)
	case len(l.held) > 0:
		return l.complete(p)
	}
	if n = skipSpace(p, 0); n > 0 {
		return n, nil
	}
	switch {
	case p[0] == ']' && l.position != beforeItem:
		l.position = inTail
		return 0, nil
	case l.position == afterItem && p[0] != ',':
		return 0, unexpected(p)
	case l.position == afterItem:
		l.position = beforeItem
		return 1, nil
	case p[0] != '{':
		return 0, fmt.Errorf("an item begins with %q: %w", p[0], ErrNotList)
	}
	// The error for an incomplete item costs twenty allocations. So an item is held at once if
	// what has come is shorter than the last item.
	if len(p) >= l.latest {
		if n, err = l.take(p); n > 0 || !errors.Is(err, ErrTruncated) {
			return n, err
		}
	}
	l.span = span{}
	return l.complete(p)
}

// hold adds p to the envelope, as far as the limit allows.
func (l *jsonList) hold(p []byte) (n int, err error) {
	n = min(len(p), maxListMeta-len(l.envelope))
	if n == 0 {
		return 0, fmt.Errorf("more than the %d bytes that are read beside the items: %w", maxListMeta, ErrTooLarge)
	}
	l.envelope = append(l.envelope, p[:n]...)
	return n, nil
}

// head adds p to the envelope up to the first item.
func (l *jsonList) head(p []byte) (n int, err error) {
	before := len(l.envelope)
	if n, err = l.hold(p); err != nil {
		return 0, err
	}
	var list jsonListMembers
	s := newScanner(l.envelope)
	defer s.Release()
	for key := range s.Members() {
		if string(key) == "items" && s.Kind() == '[' {
			end := s.Pos() + bytes.IndexByte(l.envelope[s.Pos():], '[') + 1
			l.envelope = l.envelope[:end]
			l.position = beforeFirst
			return end - before, nil
		}
		list.read(s, key)
	}
	switch {
	case s.Err == nil: // items are null, or missing
		l.position = inTail
	case !errors.Is(s.Err, ErrTruncated):
		return 0, s.Err
	}
	return n, nil
}

// complete adds to held until that is whole, and takes it. It returns how much of p it has used.
func (l *jsonList) complete(p []byte) (n int, err error) {
	n, whole := l.span.Scan(p)
	if len(l.held)+n > l.max {
		return 0, fmt.Errorf("an item of more than the %d bytes that are read: %w", l.max, ErrTooLarge)
	}
	l.held = append(l.held, p[:n]...)
	if !whole {
		return n, nil
	}
	taken, err := l.take(l.held)
	switch {
	case taken == 0 && errors.Is(err, ErrTruncated): // span has seen another end
		return 0, fmt.Errorf("brackets that do not match: %w", ErrMalformed)
	case err == nil && taken != len(l.held):
		return 0, unexpected(l.held[taken:])
	}
	l.held = l.held[:0]
	return n, err
}

// take takes the item that b begins with and returns its length. If the item is incomplete, take
// changes nothing and returns 0 and ErrTruncated.
func (l *jsonList) take(b []byte) (n int, err error) {
	s := newScanner(b)
	defer s.Release()
	l.item = Meta{}
	readObject(s, &l.item)
	if s.Err != nil {
		return 0, s.Err
	}
	item := b[:s.Pos()]
	if err := checkDepth(item); err != nil {
		return 0, err
	}
	if len(item) > l.max {
		return 0, fmt.Errorf("an item of %d bytes, at most %d are read: %w", len(item), l.max, ErrTooLarge)
	}
	l.position = afterItem
	l.latest = len(item)
	return len(item), l.emit(item, &l.item)
}

func (l *jsonList) close() (ListMeta, error) {
	var list jsonListMembers
	s := newScanner(l.envelope)
	defer s.Release()
	for key := range s.Members() {
		list.read(s, key)
	}
	s.End()
	switch {
	case s.Err != nil:
		return ListMeta{}, s.Err
	case list.meta.Kind == "", list.meta.APIVersion == "", list.seen != keyAPIVersion|keyKind|keyMetadata|keyItems:
		return ListMeta{}, fmt.Errorf("no kind, apiVersion, metadata or items: %w", ErrNotList)
	}
	return list.meta, nil
}

// jsonListMembers are the members of an envelope.
type jsonListMembers struct {
	seen uint8
	meta ListMeta
}

const (
	keyAPIVersion = 1 << iota
	keyKind
	keyMetadata
	keyItems
)

// read reads the next member. It refuses unknown members: they could not be written again.
func (l *jsonListMembers) read(s *scanner, key []byte) {
	switch string(key) {
	case "apiVersion":
		s.Once(&l.seen, keyAPIVersion)
		l.meta.APIVersion = string(s.Text())
	case "kind":
		s.Once(&l.seen, keyKind)
		l.meta.Kind = string(s.Text())
	case "metadata":
		s.Once(&l.seen, keyMetadata)
		readListMeta(s, &l.meta)
	case "items":
		s.Once(&l.seen, keyItems)
		l.meta.Sorted = l.seen&keyKind == 0
		items := s.Value()
		if s.Err == nil && items[0] != '[' && items[0] != 'n' { // Go writes null for a nil slice
			s.Err = fmt.Errorf("its items begin with %q: %w", items[0], ErrMalformed)
		}
	default:
		s.Err = fmt.Errorf("it has a member %.40q: %w", key, ErrNotList)
	}
}

// readListMeta reads a metav1.ListMeta. It refuses unknown members: they could not be written
// again.
func readListMeta(s *scanner, meta *ListMeta) {
	var seen uint8
	for key := range s.Members() {
		switch string(key) {
		case "selfLink": // not since Kubernetes 1.20
			s.Once(&seen, 1<<0)
			s.Text()
		case "resourceVersion":
			s.Once(&seen, 1<<1)
			meta.ResourceVersion = string(s.Text())
		case "continue":
			s.Once(&seen, 1<<2)
			meta.Continue = string(s.Text())
		case "remainingItemCount":
			s.Once(&seen, 1<<3)
			meta.RemainingItemCount = readCount(s)
		default:
			s.Err = fmt.Errorf("its metadata has a member %.40q: %w", key, ErrNotList)
		}
	}
}

// readCount reads an integer, or null.
func readCount(s *scanner) *int64 {
	value := s.Value()
	if s.Err != nil || string(value) == "null" {
		return nil
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		s.Err = fmt.Errorf("%.40q is not a count: %w", value, ErrMalformed)
		return nil
	}
	return &n
}
