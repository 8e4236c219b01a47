package wire

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ListMeta is the type and metadata of a list.
type ListMeta struct {
	TypeMeta
	metav1.ListMeta

	// Sorted is set for lists that were written from maps, those of custom resources in JSON:
	// keys are sorted, an empty continue is written, and items have a kind.
	Sorted bool
}

// ListMetaOf returns the ListMeta of lists of such objects, for a view that a WatchList has
// filled. object is self-describing. The kind is the usual one, although a
// CustomResourceDefinition may set another; the caller sets the version.
func ListMetaOf(e Encoding, object []byte) (ListMeta, error) {
	m, err := Inspect(e, object)
	if err != nil {
		return ListMeta{}, err
	}
	if len(m.Kind) == 0 || len(m.APIVersion) == 0 {
		return ListMeta{}, fmt.Errorf("find the list of an object: it does not say what it is: %w", ErrMalformed)
	}
	t := m.TypeMeta()
	t.Kind += listSuffix
	return ListMeta{TypeMeta: t, Sorted: e == JSON && !bytes.HasPrefix(bytes.TrimSpace(object), []byte(`{"kind":`))}, nil
}

// itemType returns the type that is written into each bare item, in JSON: only
// PartialObjectMetadataList has one. Items of built-in types have none, and those that were
// written from maps have it in their bare form.
func (m *ListMeta) itemType() (_ TypeMeta, ok bool) {
	if m.Sorted || m.Kind != kindMetadataList {
		return TypeMeta{}, false
	}
	return TypeMeta{APIVersion: m.APIVersion, Kind: kindMetadata}, true
}

// maxListMeta bounds, in bytes, the metadata, kind and keys of a list. A continue token holds
// a key of etcd, some hundred bytes.
const maxListMeta = 64 << 10

// MaxSize bounds, in bytes, an item or a watch frame: client-go reads watch frames of up
// to this size (rest.createRESTWatchDecoder). etcd takes objects of up to 1.5 MiB.
const MaxSize = 16 << 20

// Splitter splits the body of a LIST into items while it passes. Write gets the body, in pieces
// of any size; Close returns the list's metadata. A Splitter holds an item only if that comes in
// more than one piece.
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

// NewSplitter returns a Splitter that calls emit with each item, as written in the list (see
// AppendBare), when its last byte has come. An item has at most MaxSize bytes. item and m are valid until emit returns. An
// error of emit ends the splitting, and Close returns it.
func NewSplitter(e Encoding, emit func(item []byte, m *Meta) error) (*Splitter, error) {
	return newSplitter(e, MaxSize, emit)
}

func newSplitter(e Encoding, most int, emit itemFunc) (*Splitter, error) {
	switch e {
	case Protobuf:
		return &Splitter{body: &protoList{max: most, emit: emit}}, nil
	case JSON:
		return &Splitter{body: &jsonList{max: most, emit: emit}}, nil
	default:
		return nil, fmt.Errorf("split list: %w", ErrEncoding)
	}
}

// Write takes the next bytes of the body. It fails as soon as it is known that the body cannot be split, and Close with the same
// error.
func (s *Splitter) Write(p []byte) (int, error) {
	if s.failed == nil && len(p) > 0 {
		s.failed = s.body.write(p)
	}
	return len(p), s.failed
}

// Close returns the list's metadata if the body was one complete list. It must be called after a
// clean end of the body, as the transport reports it; only then do the emitted items count. Errors
// are ErrTruncated, ErrMalformed, ErrTooLarge, ErrNotList or that of emit.
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
