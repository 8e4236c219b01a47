package wire

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/edgehub-io/edgehub/cache/wire/jsonscan"
)

// jsonList splits a list in JSON. Keys, values and items are taken from the pieces in which the
// list comes, or held until they are whole.
type jsonList struct {
	max  int
	emit itemFunc

	held   []byte
	span   jsonscan.Span // of what is held
	latest int           // size of the last item

	expect expect
	key    listKey
	seen   uint8 // 1 << listKey
	meta   ListMeta
	item   Meta // of the item that is being emitted
}

// expect is what comes next in a list.
type expect uint8

const (
	expectOpen expect = iota
	expectKey
	expectColon
	expectValue
	expectFirstItem
	expectItem
	expectItemEnd
	expectValueEnd
	expectNothing
)

// listKey is a member of a list. Others are refused: they could not be written again.
type listKey uint8

const (
	keyKind listKey = iota
	keyAPIVersion
	keyMetadata
	keyItems
	allListKeys = 1<<keyKind | 1<<keyAPIVersion | 1<<keyMetadata | 1<<keyItems
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
	if len(l.held) > 0 {
		return l.complete(p)
	}
	if n = jsonscan.SkipSpace(p, 0); n > 0 {
		return n, nil
	}
	// The error for an incomplete item costs twenty allocations. So an item is held at once if
	// what has come is shorter than the last item.
	if !l.atItem() || len(p) >= l.latest {
		if n, err = l.take(p); n > 0 || !errors.Is(err, ErrTruncated) {
			return n, err
		}
	}
	l.span = jsonscan.Span{}
	return l.complete(p)
}

// complete adds to held until that is whole, and takes it. It returns how much of p it has used.
func (l *jsonList) complete(p []byte) (n int, err error) {
	n, whole := l.span.Scan(p)
	limit := maxListMeta
	if l.atItem() {
		limit = l.max
	}
	if len(l.held)+n > limit {
		return n, fmt.Errorf("more than the %d bytes that are read of one item or value: %w", limit, ErrTooLarge)
	}
	l.held = append(l.held, p[:n]...)
	if !whole {
		return n, nil
	}
	taken, err := l.take(l.held)
	switch {
	case taken == 0 && errors.Is(err, ErrTruncated): // span and take see different ends
		return n, fmt.Errorf("brackets that do not match: %w", ErrMalformed)
	case err == nil && taken != len(l.held):
		return n, jsonscan.Unexpected(l.held, taken)
	}
	l.held = l.held[:0]
	return n, err
}

func (l *jsonList) atItem() bool { return l.expect == expectFirstItem || l.expect == expectItem }

// take takes what b begins with and returns its length. If that is incomplete, it changes
// nothing and returns 0 and ErrTruncated.
func (l *jsonList) take(b []byte) (n int, err error) {
	switch c := b[0]; {
	case l.expect == expectOpen:
		return l.punctuation(b, c == '{', expectKey)
	case l.expect == expectKey:
		return l.takeKey(b)
	case l.expect == expectColon:
		return l.punctuation(b, c == ':', expectValue)
	case l.expect == expectValue:
		return l.takeValue(b)
	case c == ']' && (l.expect == expectFirstItem || l.expect == expectItemEnd):
		return l.punctuation(b, true, expectValueEnd)
	case l.atItem():
		return l.takeItem(b)
	case l.expect == expectItemEnd:
		return l.punctuation(b, c == ',', expectItem)
	case l.expect == expectValueEnd && c == '}':
		return l.punctuation(b, true, expectNothing)
	default:
		return l.punctuation(b, c == ',' && l.expect == expectValueEnd, expectKey)
	}
}

func (l *jsonList) punctuation(b []byte, right bool, next expect) (int, error) {
	if !right {
		return 0, jsonscan.Unexpected(b, 0)
	}
	l.expect = next
	return 1, nil
}

func (l *jsonList) takeKey(b []byte) (int, error) {
	s := jsonscan.New(b)
	defer s.Release()
	key := s.Text()
	if s.Err != nil {
		return 0, s.Err
	}
	switch string(key) {
	case "kind":
		l.key = keyKind
	case "apiVersion":
		l.key = keyAPIVersion
	case "metadata":
		l.key = keyMetadata
	case "items":
		l.key = keyItems
		l.meta.Sorted = l.seen&(1<<keyKind) == 0
	default:
		return 0, fmt.Errorf("it has a member %.40q: %w", key, ErrNotList)
	}
	if l.seen&(1<<l.key) != 0 {
		return 0, fmt.Errorf("%q occurs twice: %w", key, ErrMalformed)
	}
	l.seen |= 1 << l.key
	l.expect = expectColon
	return s.Pos(), nil
}

func (l *jsonList) takeValue(b []byte) (int, error) {
	if l.key == keyItems && b[0] == '[' {
		l.expect = expectFirstItem
		return 1, nil
	}
	s := jsonscan.New(b)
	defer s.Release()
	meta := l.meta // unchanged where the value is not whole
	switch l.key {
	case keyMetadata:
		readListMeta(s, &meta)
	case keyItems: // null: what Go writes for a slice that is nil
		if b[0] != 'n' {
			return 0, jsonscan.Unexpected(b, 0)
		}
		s.Value()
	default:
		if b[0] != '"' {
			return 0, jsonscan.Unexpected(b, 0)
		}
		if l.key == keyKind {
			meta.Kind = string(s.Text())
		} else {
			meta.APIVersion = string(s.Text())
		}
	}
	if s.Err != nil {
		return 0, s.Err
	}
	l.meta = meta
	l.expect = expectValueEnd
	return s.Pos(), nil
}

func (l *jsonList) takeItem(b []byte) (int, error) {
	if b[0] != '{' {
		return 0, fmt.Errorf("an item begins with %q: %w", b[0], ErrNotList)
	}
	s := jsonscan.New(b)
	defer s.Release()
	l.item = Meta{}
	readObject(s, &l.item)
	if s.Err != nil {
		return 0, s.Err
	}
	item := b[:s.Pos()]
	if err := jsonscan.CheckDepth(item); err != nil {
		return 0, err
	}
	if len(item) > l.max {
		return 0, fmt.Errorf("an item of %d bytes, at most %d are read: %w", len(item), l.max, ErrTooLarge)
	}
	l.expect = expectItemEnd
	l.latest = len(item)
	return len(item), l.emit(item, &l.item)
}

func (l *jsonList) close() (ListMeta, error) {
	if l.expect != expectNothing {
		return ListMeta{}, ErrTruncated
	}
	if l.seen != allListKeys {
		return ListMeta{}, fmt.Errorf("no kind, apiVersion, metadata or items: %w", ErrNotList)
	}
	return l.meta, nil
}

// readListMeta reads a metav1.ListMeta. It refuses unknown members: they could not be written
// again.
func readListMeta(s *jsonscan.Scanner, meta *ListMeta) {
	var seen uint8
	for key := range s.Members() {
		switch string(key) {
		case "selfLink":
			s.Once(&seen, 1<<0)
			meta.SelfLink = string(s.Text())
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
func readCount(s *jsonscan.Scanner) *int64 {
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
