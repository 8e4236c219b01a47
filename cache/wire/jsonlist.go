package wire

import (
	"errors"
	"fmt"

	"github.com/edgehub-io/edgehub/cache/wire/jsonscan"
)

// jsonList splits a list in JSON. Keys, values and items are taken where they are whole;
// what is not is held until span has found its end.
type jsonList struct {
	max  int
	emit itemFunc

	held []byte
	span jsonscan.Span

	expect expect
	key    listKey
	seen   uint8 // 1 << listKey
	meta   ListMeta
	item   Meta // of the item that is being emitted
}

// expect is what may come next in a list.
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
	if len(l.held) > 0 {
		n, ended := l.span.Scan(p)
		if err := l.hold(p[:n]); err != nil || !ended {
			return err
		}
		if err := l.takeHeld(); err != nil {
			return err
		}
		p = p[n:]
	}
	for i := jsonscan.SkipSpace(p, 0); i < len(p); i = jsonscan.SkipSpace(p, i) {
		end, err := l.take(p, i)
		if end == i && errors.Is(err, ErrTruncated) {
			l.span = jsonscan.Span{}
			l.span.Scan(p[i:])
			return l.hold(p[i:])
		}
		if err != nil {
			return err
		}
		i = end
	}
	return nil
}

func (l *jsonList) hold(p []byte) error {
	limit := maxListMeta
	if l.expect == expectFirstItem || l.expect == expectItem {
		limit = l.max
	}
	if len(l.held)+len(p) > limit {
		return fmt.Errorf("more than the %d bytes that are read of one item or value: %w", limit, ErrTooLarge)
	}
	l.held = append(l.held, p...)
	return nil
}

func (l *jsonList) takeHeld() error {
	end, err := l.take(l.held, 0)
	switch {
	case end == 0 && errors.Is(err, ErrTruncated): // span and take see different ends
		return fmt.Errorf("brackets that do not match: %w", ErrMalformed)
	case err != nil:
		return err
	case end != len(l.held):
		return jsonscan.Unexpected(l.held, end)
	}
	l.held = l.held[:0]
	return nil
}

// take takes what begins at b[i] and returns its end. If that is not whole, the error is
// ErrTruncated, end is i, and nothing has changed.
func (l *jsonList) take(b []byte, i int) (end int, err error) {
	switch c := b[i]; l.expect {
	case expectOpen:
		return l.punctuation(b, i, c == '{', expectKey)
	case expectKey:
		return l.takeKey(b, i)
	case expectColon:
		return l.punctuation(b, i, c == ':', expectValue)
	case expectValue:
		return l.takeValue(b, i)
	case expectFirstItem:
		if c == ']' {
			return l.punctuation(b, i, true, expectValueEnd)
		}
		return l.takeItem(b, i)
	case expectItem:
		return l.takeItem(b, i)
	case expectItemEnd:
		if c == ']' {
			return l.punctuation(b, i, true, expectValueEnd)
		}
		return l.punctuation(b, i, c == ',', expectItem)
	case expectValueEnd:
		if c == '}' {
			return l.punctuation(b, i, true, expectNothing)
		}
		return l.punctuation(b, i, c == ',', expectKey)
	default:
		return i, jsonscan.Unexpected(b, i)
	}
}

func (l *jsonList) punctuation(b []byte, i int, right bool, next expect) (int, error) {
	if !right {
		return i, jsonscan.Unexpected(b, i)
	}
	l.expect = next
	return i + 1, nil
}

func (l *jsonList) takeKey(b []byte, i int) (int, error) {
	end, plain, err := jsonscan.SkipString(b, i)
	if err != nil {
		return i, err
	}
	key, err := jsonscan.Unquote(b[i:end], plain)
	if err != nil {
		return i, err
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
		return i, fmt.Errorf("it has a member %.40q: %w", key, ErrNotList)
	}
	if l.seen&(1<<l.key) != 0 {
		return i, fmt.Errorf("%q occurs twice: %w", key, ErrMalformed)
	}
	l.seen |= 1 << l.key
	l.expect = expectColon
	return end, nil
}

func (l *jsonList) takeValue(b []byte, i int) (int, error) {
	if l.key == keyItems && b[i] == '[' {
		l.expect = expectFirstItem
		return i + 1, nil
	}
	// One value, walked like a member that has been found already.
	v := jsonscan.Members{Data: b, Pos: i}
	switch l.key {
	case keyItems: // null: what Go writes for a slice that is nil
		if b[i] != 'n' {
			return i, jsonscan.Unexpected(b, i)
		}
		v.Skip()
	case keyMetadata:
		// The first error is that the value is not whole: nothing is kept then.
		before := l.meta
		if readListMeta(&v, &l.meta); v.Err != nil {
			l.meta = before
		}
	default:
		if b[i] != '"' {
			return i, jsonscan.Unexpected(b, i)
		}
		value := v.Text()
		if v.Err != nil {
			break
		}
		if l.key == keyKind {
			l.meta.Kind = string(value)
		} else {
			l.meta.APIVersion = string(value)
		}
	}
	if v.Err != nil {
		return i, v.Err
	}
	l.expect = expectValueEnd
	return v.Pos, nil
}

func (l *jsonList) takeItem(b []byte, i int) (int, error) {
	if b[i] != '{' {
		return i, fmt.Errorf("an item begins with %q: %w", b[i], ErrNotList)
	}
	m, end, err := scanObject(b, i)
	if err != nil {
		return i, err
	}
	if end-i > l.max {
		return i, fmt.Errorf("an item of %d bytes, at most %d are read: %w", end-i, l.max, ErrTooLarge)
	}
	l.expect = expectItemEnd
	l.item = m
	return end, l.emit(b[i:end], &l.item)
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
