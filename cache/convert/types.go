package convert

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// newObject returns an empty object of type t.
func newObject(t wire.TypeMeta) (runtime.Object, error) {
	if isMetadata(t) {
		return &metav1.PartialObjectMetadata{}, nil
	}
	object, err := scheme.Scheme.New(groupVersionKind(t))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", t.APIVersion, t.Kind, ErrUnknownType)
	}
	return object, nil
}

// isMetadata reports whether objects of this type are the metadata of others. Those of
// v1beta1 are the same.
func isMetadata(t wire.TypeMeta) bool {
	return groupVersionKind(t).Group == metav1.GroupName && t.Kind == MetadataType.Kind
}

func groupVersionKind(t wire.TypeMeta) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(t.APIVersion, t.Kind)
}
