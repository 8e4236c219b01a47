package wire

import (
	"fmt"
	"io"
)

// SplitOptions are the limits of a Splitter. The zero value is good.
type SplitOptions struct {
	// MaxItem is the size, in bytes, of the largest item; 0 is DefaultMaxSize.
	MaxItem int
}

// Splitter takes the body of a LIST apart while it passes. It is fed with Write, in
// pieces of any size, and asked with Close what it was.
//
// It holds an item only where the item comes in more than one piece.
type Splitter struct {
	body   listBody
	failed error
}

// listBody is a list in one encoding. write is called with at least one byte.
type listBody interface {
	write(p []byte) error
	close() (ListMeta, error)
}

// itemFunc takes one item. See NewSplitter.
type itemFunc func(item []byte, m *Meta) error

// NewSplitter returns a Splitter that calls emit with each item, as it stands in the list
// (see AppendBare), when its last byte has come. item and m hold until emit returns. An
// error of emit ends the splitting, and Close returns it.
func NewSplitter(e Encoding, o SplitOptions, emit func(item []byte, m *Meta) error) (*Splitter, error) {
	if o.MaxItem == 0 {
		o.MaxItem = DefaultMaxSize
	}
	switch e {
	case Protobuf:
		return &Splitter{body: &protoList{max: o.MaxItem, emit: emit}}, nil
	case JSON:
		return &Splitter{body: &jsonList{max: o.MaxItem, emit: emit}}, nil
	default:
		return nil, fmt.Errorf("split list: %w", ErrEncoding)
	}
}

var _ io.Writer = (*Splitter)(nil)

// Write takes the next bytes of the body, and never fails: a client's stream does not
// depend on whether the cache can read it. After a failure it does nothing; Failed tells.
func (s *Splitter) Write(p []byte) (int, error) {
	if s.failed == nil && len(p) > 0 {
		s.failed = s.body.write(p)
	}
	return len(p), nil
}

// Failed returns why the body cannot be split, as soon as that is known.
func (s *Splitter) Failed() error { return s.failed }

// Close returns what the list said of itself, if the body was a whole list and nothing
// else. It has to be called when the body has ended cleanly, for which the transport
// vouches, and only then do the items that were emitted count. Otherwise the error is
// ErrTruncated, ErrMalformed, ErrTooLarge, ErrNotList or that of emit.
func (s *Splitter) Close() (ListMeta, error) {
	if s.failed != nil {
		return ListMeta{}, fmt.Errorf("split list: %w", s.failed)
	}
	m, err := s.body.close()
	if err != nil {
		return ListMeta{}, fmt.Errorf("split list: %w", err)
	}
	return m, nil
}
