package wire

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ListMeta is what a list says of itself.
type ListMeta struct {
	TypeMeta

	ResourceVersion    string
	Continue           string
	RemainingItemCount *int64
	SelfLink           string // empty since Kubernetes 1.20

	// Sorted is set for lists that were written from maps, those of custom resources in
	// JSON: keys are in alphabetical order, continue is there also when it is empty, and
	// items say themselves what they are.
	Sorted bool
}

// ListMetaOf returns what a list of objects like object, self-describing, says of itself,
// as far as one object tells, for a caller that has seen no list: one that a WatchList has
// filled. The kind is the usual one (a CustomResourceDefinition may set another), and
// versions are the caller's to fill in.
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

// itemType is what each item of a list says that it is, beside being bare. Built-in types
// say nothing, and maps have it in their bare form: there is only one list left that is
// made of objects that say it, in JSON.
func (m *ListMeta) itemType() (_ TypeMeta, ok bool) {
	if m.Sorted || m.Kind != kindMetadataList {
		return TypeMeta{}, false
	}
	return TypeMeta{APIVersion: m.APIVersion, Kind: kindMetadata}, true
}

// maxListMeta is the size, in bytes, of the largest metadata, kind or key of a list. A
// continue token holds a key of etcd, some hundred bytes.
const maxListMeta = 64 << 10

// DefaultMaxSize is the size, in bytes, of the largest item or watch frame that is read:
// the size up to which client-go reads watch frames (rest.createRESTWatchDecoder). etcd
// takes objects of up to 1.5 MiB.
const DefaultMaxSize = 16 << 20

const (
	kindMetadata     = "PartialObjectMetadata"
	kindMetadataList = "PartialObjectMetadataList"
	listSuffix       = "List"

	// oldMetadata is the version of PartialObjectMetadataList that has, in protobuf, the
	// items in field 1 and the metadata in field 2, unlike every other list.
	oldMetadata = metav1.GroupName + "/v1beta1"
)
