package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ItemSizes sums up the items of a list that is to be written: protobuf begins with its length.
// The zero value is an empty list.
type ItemSizes struct {
	count int64
	sum   int64 // of the items
	field int64 // of the items as fields of a protobuf list
	empty int64 // items without members, {}

	unknown bool // all but count
}

// UnknownSizes are count items of unknown size. Only a list in JSON may have them.
func UnknownSizes(count int) ItemSizes { return ItemSizes{count: int64(count), unknown: true} }

// Add adds an item of n bytes.
func (s *ItemSizes) Add(n int) {
	s.count++
	s.sum += int64(n)
	s.field += int64(bytesFieldSize(n))
	if n == len("{}") {
		s.empty++
	}
}

// errSizes is returned when other items are written than were announced.
var errSizes = errors.New("the items are not those whose sizes were summed up")

// ListWriter writes the body of a list like an apiserver: Size (for Content-Length), WriteItem
// for each item, Close.
type ListWriter struct {
	w                 io.Writer
	head, tail        []byte
	separator, prefix []byte // between items, and of each item
	protobuf          bool

	buf     []byte
	size    int64
	left    int64 // remaining bytes; if size is unknown, items
	count   int64 // items written
	started bool
	err     error
}

// NewListWriter returns a writer of a list whose items have the given sizes. It writes nothing
// yet.
func NewListWriter(w io.Writer, e Encoding, m ListMeta, sizes ItemSizes) (*ListWriter, error) {
	l := &ListWriter{w: w, protobuf: e == Protobuf}
	var items int64
	switch e {
	case Protobuf:
		if sizes.unknown {
			return nil, fmt.Errorf("write list in protobuf: %w", errSizes)
		}
		listMeta := appendBytesField(nil, listMetadata, mustEncode(e, &m.ListMeta))
		raw := int64(len(listMeta)) + sizes.field
		l.head = append(appendUnknownHeader(nil, m.TypeMeta, int(raw)), listMeta...)
		l.tail = []byte(unknownTrailer)
		items = sizes.field
	case JSON:
		l.jsonFrame(&m, sizes.count)
		l.separator = []byte{','}
		items = sizes.sum + max(0, sizes.count-1)
		if t, ok := m.itemType(); ok {
			l.prefix = append(appendJSONType(nil, t), ',')
			// It replaces the { of each item; {} gets no comma.
			items += sizes.count*int64(len(l.prefix)-1) - sizes.empty
		}
	default:
		return nil, fmt.Errorf("write list: %w", ErrEncoding)
	}
	l.size = int64(len(l.head)) + items + int64(len(l.tail))
	l.left = l.size
	if sizes.unknown {
		l.size, l.left = -1, sizes.count
	}
	return l, nil
}

// Size is the length of the body in bytes, or -1 for UnknownSizes.
func (l *ListWriter) Size() int64 { return l.size }

// WriteItem writes the next item, in its bare form (see AppendBare). It fails if w does, or if
// there are more bytes than announced.
func (l *ListWriter) WriteItem(item []byte) error {
	l.start()
	l.buf = l.buf[:0]
	switch {
	case l.protobuf:
		l.buf = appendBytesHeader(l.buf, listItems, len(item))
	case l.count > 0:
		l.buf = append(l.buf, l.separator...)
	}
	l.count++
	if l.size < 0 {
		l.left--
	}
	if len(l.prefix) > 0 {
		if len(item) < len("{}") {
			l.err = errors.Join(l.err, fmt.Errorf("write list: item %.10q: %w", item, ErrMalformed))
			return l.err
		}
		l.buf = append(l.buf, l.prefix...)
		if item = item[1:]; len(item) == len("}") {
			l.buf = l.buf[:len(l.buf)-len(",")]
		}
	}
	l.write(l.buf)
	l.write(item)
	return l.err
}

// Close ends the list. It fails if w does, or if there were fewer bytes than announced.
func (l *ListWriter) Close() error {
	l.start()
	l.write(l.tail)
	if l.err == nil && l.left != 0 {
		l.err = fmt.Errorf("write list: %d bytes or items are missing: %w", l.left, errSizes)
	}
	return l.err
}

func (l *ListWriter) start() {
	if !l.started {
		l.started = true
		l.write(l.head)
	}
}

// write writes b unless it has failed before.
func (l *ListWriter) write(b []byte) {
	if l.err != nil || len(b) == 0 {
		return
	}
	if l.size >= 0 {
		l.left -= int64(len(b))
	}
	if l.left < 0 {
		l.err = fmt.Errorf("write list: %d bytes or items too many: %w", -l.left, errSizes)
		return
	}
	if _, err := l.w.Write(b); err != nil {
		l.err = fmt.Errorf("write list: %w", err)
	}
}

// jsonFrame sets what surrounds the items.
func (l *ListWriter) jsonFrame(m *ListMeta, items int64) {
	if m.Sorted {
		l.head = append(appendJSONString([]byte(`{"apiVersion":`), m.APIVersion), `,"items":[`...)
		l.tail = append(appendJSONString([]byte(`],"kind":`), m.Kind), `,"metadata":`...)
		l.tail = append(append(l.tail, sortedJSONListMeta(m)...), "}\n"...)
		return
	}
	l.head = append(appendJSONType(nil, m.TypeMeta), `,"metadata":`...)
	l.head = append(append(l.head, mustMarshal(&m.ListMeta)...), `,"items":[`...)
	l.tail = []byte("]}\n")
	if _, metadata := m.itemType(); metadata && items == 0 {
		// Only of this type does an apiserver write null for an empty list.
		l.head = append(l.head[:len(l.head)-len("[")], "null"...)
		l.tail = []byte("}\n")
	}
}

func sortedJSONListMeta(m *ListMeta) []byte {
	return mustMarshal(struct {
		Continue           string `json:"continue"`
		RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
		ResourceVersion    string `json:"resourceVersion"`
	}{m.Continue, m.RemainingItemCount, m.ResourceVersion})
}

// mustMarshal marshals strings and numbers, which cannot fail.
func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
