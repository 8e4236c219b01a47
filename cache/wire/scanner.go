package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"unicode/utf8"
)

// maxDepth is how deep JSON may be nested. The schema of a CustomResourceDefinition is the
// deepest that Kubernetes itself writes, some tens of levels. jsontext stops at 10,000.
const maxDepth = 512

// scanner finds values in JSON without decoding them into Go values: the objects of a list are stored as they came, and only a
// few of their strings are read. It walks one value that is in memory, from its begin to its end, for one goroutine.
// After an error it reads nothing more. What it returns points into the input; only strings with escapes or invalid UTF-8 are
// copies.
//
//	for key := range s.Members() {
//		… s.Value(), or another method that reads the member's value
//	}
//
// It is a [jsontext.Decoder] that reads the input in place. On lists of pods it takes as much CPU time as the validator that it
// replaced, which was written by hand, and on watch events and single objects up to 10 % more. It allocates nothing, except for
// the error of a value that is cut short: about twenty objects.
type scanner struct {
	Err error // why the value could not be read

	decoder jsontext.Decoder
	input   bytes.Buffer
	key     []byte // of the last member
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// newScanner returns a scanner of the value that b begins with, after blanks. Release returns it to a
// pool.
func newScanner(b []byte) *scanner {
	s, ok := scanners.Get().(*scanner)
	if !ok {
		s = new(scanner)
	}
	s.input = *bytes.NewBuffer(b)
	// Clients replace invalid UTF-8, and so does text. An apiserver writes some keys twice:
	// those of managedFields.
	s.decoder.Reset(&s.input, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	return s
}

// Release must be called when the scanner is not used any more.
func (s *scanner) Release() {
	s.Err, s.key, s.input = nil, nil, bytes.Buffer{}
	s.decoder.Reset(&s.input)
	scanners.Put(s)
}

// Pos is the end of what has been read.
func (s *scanner) Pos() int { return int(s.decoder.InputOffset()) }

// Kind returns the kind of the next value, or 0 if there is none.
func (s *scanner) Kind() jsontext.Kind {
	if s.Err != nil {
		return jsontext.KindInvalid
	}
	return s.decoder.PeekKind()
}

// Members yields the keys of an object. The loop must read each value, and must not end early
// unless the scanner is not used any more.
func (s *scanner) Members() iter.Seq[[]byte] {
	return func(yield func(key []byte) bool) {
		if s.token() != jsontext.KindBeginObject && s.Err == nil {
			s.Err = fmt.Errorf("scan JSON: not an object: %w", ErrMalformed)
		}
		for s.Err == nil && s.decoder.PeekKind() != jsontext.KindEndObject {
			if s.key = s.Text(); s.Err != nil || !yield(s.key) {
				return
			}
		}
		s.token()
	}
}

// Once refuses a key that occurs twice: decoders differ on which counts. seen is one bit
// for each key that matters.
func (s *scanner) Once(seen *uint8, bit uint8) {
	if *seen&bit != 0 && s.Err == nil {
		s.Err = fmt.Errorf("scan JSON: %.20q occurs twice: %w", s.key, ErrMalformed)
	}
	*seen |= bit
}

// Value reads and returns a value.
func (s *scanner) Value() []byte {
	if s.Err != nil {
		return nil
	}
	value, err := s.decoder.ReadValue()
	s.fail(err)
	return value
}

// Text reads a string. null is the empty string, as it is for decoders.
func (s *scanner) Text() []byte {
	value := s.Value()
	switch {
	case s.Err != nil || value[0] == 'n':
		return nil
	case value[0] != '"':
		s.Err = fmt.Errorf("scan JSON: %.20q is not a string: %w", value, ErrMalformed)
		return nil
	}
	text := value[1 : len(value)-1]
	if bytes.IndexByte(text, '\\') >= 0 || !utf8.Valid(text) {
		text, _ = jsontext.AppendUnquote(nil, value) // invalid UTF-8 is an error, and replaced
	}
	return text
}

// End reads to the end of the input, where only blanks may follow.
func (s *scanner) End() {
	if s.Err != nil {
		return
	}
	if _, err := s.decoder.ReadToken(); err == nil {
		s.Err = fmt.Errorf("scan JSON: a second value: %w", ErrMalformed)
	} else if !errors.Is(err, io.EOF) {
		s.fail(err)
	}
}

func (s *scanner) token() jsontext.Kind {
	if s.Err != nil {
		return jsontext.KindInvalid
	}
	t, err := s.decoder.ReadToken()
	s.fail(err)
	return t.Kind()
}

func (s *scanner) fail(err error) {
	if err == nil {
		return
	}
	reason := ErrMalformed
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		reason = ErrTruncated
	}
	s.Err = fmt.Errorf("scan JSON: %w: %w", reason, err)
}

// checkDepth returns ErrTooLarge for a value that is nested too deep.
func checkDepth(value []byte) error {
	if bytes.Count(value, []byte{'{'})+bytes.Count(value, []byte{'['}) <= maxDepth {
		return nil
	}
	var s span
	s.Scan(value)
	return s.checkDepth()
}

// skipSpace returns the end of the blanks at b[i].
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// unexpected is the ErrMalformed for the bytes that b begins with.
func unexpected(b []byte) error {
	return fmt.Errorf("scan JSON: unexpected %.10q: %w", b[:min(10, len(b))], ErrMalformed)
}
