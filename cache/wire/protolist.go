package wire

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// protoList splits a list in protobuf: the prefix and the fields of runtime.Unknown. The fields
// of its raw, ListMeta and items, are read one by one.
type protoList struct {
	max  int
	emit itemFunc

	held []byte // an incomplete prefix or field
	need int    // the length that held will have; 0 if the field's header is incomplete

	prefixed bool
	envelope unknown
	inRaw    bool
	rawLeft  uint64 // remaining bytes of raw
	meta     ListMeta
	metaSeen bool
	item     Meta // of the item that is being emitted
}

func (l *protoList) write(p []byte) error {
	for len(p) > 0 {
		if len(l.held) > 0 {
			n, err := l.complete(p)
			if err != nil {
				return err
			}
			p = p[n:]
			continue
		}
		n, err := l.take(p)
		if err != nil {
			return err
		}
		if n == 0 {
			l.held = append(l.held, p...)
			return nil
		}
		p = p[n:]
	}
	return nil
}

// complete adds to held until that is whole, and takes it. It returns how much of p it has used.
func (l *protoList) complete(p []byte) (int, error) {
	n := 1 // while the length is unknown
	if l.need > 0 {
		n = min(l.need-len(l.held), len(p))
	}
	l.held = append(l.held, p[:n]...)
	if len(l.held) < l.need {
		return n, nil
	}
	l.need = 0
	taken, err := l.take(l.held)
	if taken > 0 {
		l.held = l.held[:0]
	}
	return n, err
}

// take takes what p begins with, and returns its length. It returns 0 if that is incomplete, and
// sets need if the length is known.
func (l *protoList) take(p []byte) (int, error) {
	if !l.prefixed {
		l.need = len(protoPrefix)
		if len(p) < l.need {
			return 0, nil
		}
		if string(p[:l.need]) != protoPrefix {
			return 0, fmt.Errorf("no k8s prefix: %w", ErrMalformed)
		}
		n := l.need
		l.prefixed, l.need = true, 0
		return n, nil
	}
	tag, n := varint(p)
	length, m := uint64(0), 0
	if n > 0 {
		length, m = varint(p[n:])
	}
	switch {
	case n < 0 || m < 0:
		return 0, fmt.Errorf("the header of a field: %w", ErrMalformed)
	case n == 0 || m == 0:
		return 0, nil
	case tag&7 != wireBytes:
		return 0, fmt.Errorf("a field with tag %d: %w", tag, ErrNotList)
	case l.inRaw:
		return l.takeOfRaw(p, tag, n+m, length)
	case tag == unknownRaw:
		return n + m, l.enterRaw(length)
	}
	whole, err := l.fits(p, n+m, length, maxListMeta)
	if !whole || err != nil {
		return 0, err
	}
	return n + m + int(length), l.envelope.field(tag, p[n+m:][:length])
}

// fits reports whether p has the whole field, after checking the field's limit.
func (l *protoList) fits(p []byte, header int, length uint64, limit int) (bool, error) {
	if length > uint64(limit) {
		return false, fmt.Errorf("a field of %d bytes, at most %d are read: %w", length, limit, ErrTooLarge)
	}
	if l.need = header + int(length); len(p) < l.need {
		return false, nil
	}
	l.need = 0
	return true, nil
}

func (l *protoList) enterRaw(length uint64) error {
	if err := l.envelope.field(unknownRaw, nil); err != nil {
		return err
	}
	// A single object looks like a list: its field 1 is ObjectMeta. One list has its items
	// in field 1.
	if !strings.HasSuffix(string(l.envelope.kind), listSuffix) || string(l.envelope.apiVersion) == metav1.GroupName+"/"+oldMetadata {
		return fmt.Errorf("its type is %.40q %.40q: %w", l.envelope.apiVersion, l.envelope.kind, ErrNotList)
	}
	// Copies: held is overwritten.
	l.meta.TypeMeta = TypeMeta{APIVersion: string(l.envelope.apiVersion), Kind: string(l.envelope.kind)}
	l.inRaw, l.rawLeft = length > 0, length
	return nil
}

func (l *protoList) takeOfRaw(p []byte, tag uint64, header int, length uint64) (int, error) {
	limit := l.max
	if tag == listMetadata {
		limit = maxListMeta
	}
	whole, err := l.fits(p, header, length, limit)
	if err != nil {
		return 0, err
	}
	if uint64(header)+length > l.rawLeft {
		return 0, fmt.Errorf("a field reaches beyond the list: %w", ErrMalformed)
	}
	if !whole {
		return 0, nil
	}
	n := header + int(length)
	l.rawLeft -= uint64(n)
	l.inRaw = l.rawLeft > 0
	value := p[header:n]
	switch tag {
	case listMetadata:
		return n, l.readMeta(value)
	case listItems:
		l.item = Meta{}
		if err := l.item.readProto(value); err != nil {
			return n, err
		}
		return n, l.emit(value, &l.item)
	default:
		return n, fmt.Errorf("it has a field with tag %d: %w", tag, ErrNotList)
	}
}

// readMeta reads a ListMeta. It refuses unknown fields: they could not be written again.
func (l *protoList) readMeta(message []byte) error {
	if l.metaSeen {
		return fmt.Errorf("two ListMeta: %w", ErrMalformed)
	}
	l.metaSeen = true
	f := fields{rest: message}
	for f.next() {
		switch f.tag {
		case listMetaSelfLink: // empty since Kubernetes 1.20
		case listMetaResourceVersion:
			l.meta.ResourceVersion = string(f.value)
		case listMetaContinue:
			l.meta.Continue = string(f.value)
		case listMetaRemainingItemCount:
			n := int64(f.number)
			l.meta.RemainingItemCount = &n
		default:
			return fmt.Errorf("its ListMeta has a field with tag %d: %w", f.tag, ErrNotList)
		}
	}
	return f.err
}

func (l *protoList) close() (ListMeta, error) {
	if len(l.held) > 0 || l.inRaw || !l.envelope.whole() {
		return ListMeta{}, ErrTruncated
	}
	if !l.metaSeen {
		return ListMeta{}, fmt.Errorf("no ListMeta: %w", ErrNotList)
	}
	return l.meta, nil
}
