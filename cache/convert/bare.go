package convert

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// MetadataType is the type of the objects that Metadata returns.
var MetadataType = wire.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadata"}

// Bare converts a bare object (see wire.AppendBare) of type t from one encoding to another. The
// result is what an apiserver would have sent; if both encodings are the same, it is bare itself.
//
// Errors are ErrUnknownType, wire.ErrEncoding, or those of invalid bytes.
func Bare(from, to wire.Encoding, t wire.TypeMeta, bare []byte) ([]byte, error) {
	if from == to {
		return bare, nil
	}
	object, err := FromBare(from, t, bare)
	if err != nil {
		return nil, err
	}
	return ToBare(to, object)
}

// Metadata converts an object of any type to the PartialObjectMetadata for a client that asks for
// as=PartialObjectMetadata. Its type is MetadataType. Both objects are bare.
func Metadata(from, to wire.Encoding, bare []byte) ([]byte, error) {
	// Decoders skip fields that PartialObjectMetadata does not have.
	var partial metav1.PartialObjectMetadata
	if err := unmarshal(from, bare, &partial); err != nil {
		return nil, fmt.Errorf("read the metadata of an object: %w", err)
	}
	partial.TypeMeta = metav1.TypeMeta{}
	return ToBare(to, &partial)
}

// FromBare decodes an object of type t, bare or, in JSON, self-describing. It sets its TypeMeta.
func FromBare(e wire.Encoding, t wire.TypeMeta, bare []byte) (runtime.Object, error) {
	object, err := newObject(t)
	if err != nil {
		return nil, err
	}
	if err := unmarshal(e, bare, object); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", t.APIVersion, t.Kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(groupVersionKind(t))
	return object, nil
}

// ToBare encodes an object in its bare form, whether or not its TypeMeta is set.
func ToBare(e wire.Encoding, object runtime.Object) ([]byte, error) {
	switch e {
	case wire.Protobuf:
		m, ok := object.(protobufMessage)
		if !ok {
			return nil, fmt.Errorf("encode %T as protobuf: %w", object, ErrUnknownType)
		}
		out, err := m.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encode %T as protobuf: %w", object, err)
		}
		return out, nil
	case wire.JSON:
		var out bytes.Buffer
		if err := stdjson.NewEncoder(&out).Encode(object); err != nil {
			return nil, fmt.Errorf("encode %T as JSON: %w", object, err)
		}
		return wire.AppendBare(out.Bytes()[:0], wire.JSON, out.Bytes()) // in place
	default:
		return nil, fmt.Errorf("encode %T: %w", object, wire.ErrEncoding)
	}
}

// protobufMessage is implemented by the built-in types of Kubernetes.
type protobufMessage interface {
	Marshal() ([]byte, error)
	Unmarshal(message []byte) error
}

func unmarshal(e wire.Encoding, bare []byte, into runtime.Object) error {
	switch e {
	case wire.Protobuf:
		m, ok := into.(protobufMessage)
		if !ok {
			return ErrUnknownType
		}
		if err := m.Unmarshal(bare); err != nil {
			return fmt.Errorf("%w: %w", wire.ErrMalformed, err)
		}
		return nil
	case wire.JSON:
		if err := json.Unmarshal(bare, into); err != nil {
			return fmt.Errorf("%w: %w", wire.ErrMalformed, err)
		}
		return nil
	default:
		return wire.ErrEncoding
	}
}
