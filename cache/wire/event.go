package wire

import (
	"encoding/binary"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// AppendEvent appends a watch event of a bare object to dst, as a frame. e is protobuf or JSON.
func AppendEvent(dst []byte, e Encoding, event watch.EventType, t TypeMeta, bare []byte) []byte {
	if e == Protobuf {
		object := unknownHeaderSize(t, len(bare)) + len(bare) + len(unknownTrailer)
		dst = appendProtoEventHeader(dst, event, object)
		return appendProtoObject(dst, t, bare)
	}
	dst = append(dst, `{"type":`...)
	dst = appendJSONString(dst, string(event))
	dst = append(dst, `,"object":`...)
	dst = appendJSONObject(dst, t, bare)
	return append(dst, "}\n"...)
}

// appendProtoEventHeader appends what precedes an object of n bytes.
func appendProtoEventHeader(dst []byte, event watch.EventType, n int) []byte {
	extension := bytesFieldSize(n)
	length := bytesFieldSize(len(event)) + bytesFieldSize(extension)
	dst = binary.BigEndian.AppendUint32(dst, uint32(length))
	dst = appendBytesField(dst, watchEventType, string(event))
	dst = appendBytesHeader(dst, watchEventObject, extension)
	return appendBytesHeader(dst, rawExtensionRaw, n)
}

// AppendBookmark appends a BOOKMARK at a version. Its object has nothing but metadata. With
// initialEventsEnd, the bookmark ends the initial events of a WatchList.
func AppendBookmark(dst []byte, e Encoding, t TypeMeta, resourceVersion string, initialEventsEnd bool) []byte {
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: resourceVersion}}
	if initialEventsEnd {
		object.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return AppendEvent(dst, e, watch.Bookmark, t, mustEncode(e, &object))
}

// AppendError appends an ERROR, after which an apiserver ends the stream. Package
// k8s.io/apimachinery/pkg/api/errors has Statuses, such as NewResourceExpired for 410.
func AppendError(dst []byte, e Encoding, status metav1.Status) []byte {
	t := TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.TypeMeta = metav1.TypeMeta{}
	return AppendEvent(dst, e, watch.Error, t, mustEncode(e, &status))
}

// mustEncode encodes the hub's own strings, which cannot fail.
func mustEncode(e Encoding, object interface{ Marshal() ([]byte, error) }) []byte {
	if e == JSON {
		return mustMarshal(object)
	}
	b, err := object.Marshal()
	if err != nil {
		panic(err)
	}
	return b
}
