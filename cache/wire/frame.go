package wire

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Frame is the next piece of a watch stream. Its slices are valid until the next call of Next.
type Frame struct {
	// Raw is the piece, byte for byte: the Raws of all frames are the stream.
	Raw []byte

	// More is set if Raw ends within an event: the client must get the rest before anything
	// else. The event is too large to be held, the stream has ended, or it can no longer be
	// cut into frames.
	More bool

	// Err describes why Raw is not an event: ErrTooLarge, ErrMalformed or ErrTruncated. The fields
	// below are zero then, and the client gets Raw. Blanks between events have neither an
	// error nor a type.
	Err error

	Type watch.EventType

	// Object is the self-describing object of the event, and Meta its metadata. An ERROR
	// has a Status, with a type only.
	Object []byte
	Meta   Meta

	// InitialEventsEnd is set for the bookmark that ends the initial events of a WatchList.
	InitialEventsEnd bool

	// Code is the HTTP status of an ERROR: 410 if the version is too old.
	Code int
}

// event sets what an event consists of. Meta is set already.
func (f *Frame) event(e Encoding, eventType, object []byte) error {
	if len(f.Meta.Kind) == 0 {
		return fmt.Errorf("read watch event: its object has no kind: %w", ErrMalformed)
	}
	f.Object = object
	switch string(eventType) { // constants do not allocate
	case string(watch.Added):
		f.Type = watch.Added
	case string(watch.Modified):
		f.Type = watch.Modified
	case string(watch.Deleted):
		f.Type = watch.Deleted
	case string(watch.Bookmark):
		f.Type = watch.Bookmark
	case string(watch.Error):
		f.Type = watch.Error
		return f.status(e, object)
	default:
		return fmt.Errorf("read watch event: its type is %.20q: %w", eventType, ErrMalformed)
	}
	if f.Type == watch.Bookmark {
		value, _ := f.Meta.Annotation(metav1.InitialEventsAnnotationKey)
		f.InitialEventsEnd = string(value) == "true"
	}
	return nil
}

// status sets what an ERROR consists of.
func (f *Frame) status(e Encoding, object []byte) (err error) {
	// A Status has no ObjectMeta.
	f.Meta = Meta{APIVersion: f.Meta.APIVersion, Kind: f.Meta.Kind}
	switch {
	case string(f.Meta.Kind) != "Status":
		err = fmt.Errorf("the kind is %.40q: %w", f.Meta.Kind, ErrMalformed)
	case e == Protobuf:
		f.Code, err = protoStatusCode(object)
	default:
		f.Code, err = jsonStatusCode(object)
	}
	if err != nil {
		return fmt.Errorf("read Status of watch event: %w", err)
	}
	return nil
}

func protoStatusCode(object []byte) (code int, err error) {
	_, _, raw, err := unwrapProto(object)
	if err != nil {
		return 0, err
	}
	f := fields{rest: raw}
	for f.next() {
		if f.tag == statusCode {
			code = int(int32(f.number))
		}
	}
	return code, f.err
}

func jsonStatusCode(object []byte) (code int, err error) {
	s := newScanner(object)
	defer s.Release()
	for key := range s.Members() {
		if string(key) != "code" {
			s.Value()
		} else if n := readCount(s); n != nil {
			code = int(int32(*n))
		}
	}
	return code, s.Err
}
