package fakeapiserver

import (
	"bytes"
	"encoding/binary"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// encoding is how objects are written.
type encoding struct {
	mediaType  string
	serializer runtime.Serializer
}

//nolint:gochecknoglobals // set once, by the package itself
var (
	scheme   = newScheme()
	codecs   = serializer.NewCodecFactory(scheme)
	json     = newEncoding(runtime.ContentTypeJSON)
	protobuf = newEncoding(runtime.ContentTypeProtobuf)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return s
}

func newEncoding(mediaType string) encoding {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		panic(mediaType + " is not supported") // the factory has both
	}
	return encoding{mediaType, info.Serializer}
}

// Decode reads a body that an apiserver or a hub has sent.
func Decode(body []byte) (runtime.Object, error) {
	object, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
	return object, err
}

func (e encoding) encode(object runtime.Object) []byte {
	var out bytes.Buffer
	if err := e.serializer.Encode(object, &out); err != nil {
		panic(fmt.Sprintf("encode %T: %v", object, err)) // all types are known
	}
	return out.Bytes()
}

func (e encoding) watchType() string {
	if e.mediaType == protobuf.mediaType {
		return e.mediaType + ";stream=watch"
	}
	return e.mediaType
}

// frame is a watch event about an object with its kind.
func (e encoding) frame(what watch.EventType, object []byte) []byte {
	if e.mediaType == json.mediaType {
		return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", what, bytes.TrimSpace(object))
	}
	message := metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: object}}
	body, err := message.Marshal()
	if err != nil {
		panic(err) // two fields of bytes
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// bytes is the event's object, with its type.
func (e *event) bytes(as encoding, of Resource) []byte {
	if known, ok := e.encoded.Load(as.mediaType); ok {
		return known.([]byte)
	}
	object := e.object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(of.Kind)
	body := as.encode(object)
	e.encoded.Store(as.mediaType, body)
	return body
}
