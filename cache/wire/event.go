package wire

import (
	"encoding/binary"
	"fmt"

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

// AppendBookmark appends a BOOKMARK at a version. Its object has nothing but the version; an
// apiserver's has empty fields, too. With initialEventsEnd, the bookmark ends the initial events
// of a WatchList.
func AppendBookmark(dst []byte, e Encoding, t TypeMeta, resourceVersion string, initialEventsEnd bool) []byte {
	var annotations map[string]string
	if initialEventsEnd {
		annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	var bare []byte
	if e == Protobuf {
		bare = protoBookmark(resourceVersion, annotations)
	} else {
		bare = mustMarshal(map[string]any{"metadata": struct {
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations,omitempty"`
		}{resourceVersion, annotations}})
	}
	return AppendEvent(dst, e, watch.Bookmark, t, bare)
}

func protoBookmark(resourceVersion string, annotations map[string]string) []byte {
	meta := appendBytesField(nil, objectMetaResourceVersion, resourceVersion)
	for key, value := range annotations {
		entry := appendBytesField(nil, mapKey, key)
		entry = appendBytesField(entry, mapValue, value)
		meta = appendBytesField(meta, objectMetaAnnotations, entry)
	}
	return appendBytesField(nil, objectMetadata, meta)
}

// AppendError appends an ERROR, after which an apiserver ends the stream. Package
// k8s.io/apimachinery/pkg/api/errors has Statuses, such as NewResourceExpired for 410.
func AppendError(dst []byte, e Encoding, status metav1.Status) ([]byte, error) {
	t := TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.TypeMeta = metav1.TypeMeta{}
	var bare []byte
	if e == Protobuf {
		var err error
		if bare, err = status.Marshal(); err != nil {
			return dst, fmt.Errorf("write watch event: encode Status: %w", err)
		}
	} else {
		bare = mustMarshal(&status)
	}
	return AppendEvent(dst, e, watch.Error, t, bare), nil
}
