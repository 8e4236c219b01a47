package wire

import (
	"fmt"
	"mime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Representation is an encoding and a form of an object: the whole or only its metadata. It is
// comparable and may be part of a key. The zero value stands for all representations that are never
// cached: a Table, another encoding, an unknown transformation.
type Representation struct {
	Encoding Encoding

	// Metadata is the version of PartialObjectMetadata: "v1" or, in JSON, "v1beta1". It is empty
	// for whole objects.
	Metadata string
}

const (
	kindMetadata     = "PartialObjectMetadata"
	kindMetadataList = "PartialObjectMetadataList"
	listSuffix       = "List"

	// oldMetadata is the version of PartialObjectMetadata whose lists have the items in field 1 and the metadata in field 2,
	// unlike every other list in protobuf. These are not cached: clients use v1 since Kubernetes 1.15.
	oldMetadata = "v1beta1"
)

// Cacheable reports whether objects in r can be cached, and lists written from them.
func (r Representation) Cacheable() bool { return r.Encoding != 0 }

// String is the canonical text of r, for keys, logs and files, for example "json" or
// "protobuf;as=PartialObjectMetadata;v=v1". ParseRepresentation reads it.
func (r Representation) String() string {
	if r.Metadata == "" {
		return r.Encoding.String()
	}
	return r.Encoding.String() + metadataParameter + r.Metadata
}

// AcceptList returns the Accept header for lists in r.
func (r Representation) AcceptList() string {
	if r.Metadata == "" {
		return r.Encoding.MediaType()
	}
	return r.Encoding.MediaType() + ";as=" + kindMetadataList + ";g=meta.k8s.io;v=" + r.Metadata
}

const metadataParameter = ";as=" + kindMetadata + ";v="

// ParseRepresentation reads the text of String.
func ParseRepresentation(s string) (Representation, error) {
	encoding, version, _ := strings.Cut(s, metadataParameter)
	for _, e := range []Encoding{JSON, Protobuf} {
		r := Representation{Encoding: e, Metadata: version}
		if encoding == e.String() && r.String() == s && r.known() {
			return r, nil
		}
	}
	return Representation{}, fmt.Errorf("read representation %q: %w", s, ErrEncoding)
}

// known reports whether a request or an answer can have r.
func (r Representation) known() bool {
	if r.Encoding == Protobuf && r.Metadata == oldMetadata {
		return false
	}
	return r.Metadata == "" || metadataVersion(r.Metadata)
}

// ContentType is an apiserver's Content-Type of a body in r. It is the same for whole objects and
// their metadata.
func (r Representation) ContentType() string { return r.Encoding.MediaType() }

// WatchContentType is an apiserver's Content-Type of a watch stream in r.
func (r Representation) WatchContentType() string {
	if r.Encoding == Protobuf {
		return r.Encoding.MediaType() + ";stream=watch"
	}
	return r.Encoding.MediaType()
}

// Holds reports whether objects of this type, or items of this list type, are in r. A client that
// asks for metadata may get a Status, or whole objects from an apiserver that does not know the
// parameter, and a Table has the Content-Type of JSON.
func (r Representation) Holds(t TypeMeta) bool {
	metadata, known := metadataOf(strings.TrimSuffix(t.Kind, listSuffix), t.APIVersion)
	return r.Cacheable() && known && metadata == r.Metadata
}

// metadataOf returns Representation.Metadata for objects of a kind, and false if they are never
// cached.
func metadataOf(kind, apiVersion string) (metadata string, known bool) {
	version, isMeta := strings.CutPrefix(apiVersion, metav1.GroupName+"/")
	if !isMeta {
		return "", true
	}
	if kind == kindMetadata && metadataVersion(version) {
		return version, true
	}
	return "", false // a Table
}

func metadataVersion(v string) bool { return v == "v1" || v == oldMetadata }

// ParseContentType returns the representation of a body or a watch stream. An apiserver leaves out
// the parameter "as"; [Answered] finds it in the request.
func ParseContentType(contentType string) Representation {
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return Representation{}
	}
	for _, e := range []Encoding{JSON, Protobuf} {
		if mediaType == e.MediaType() {
			r, _ := transformed(e, params)
			return r
		}
	}
	return Representation{}
}

// transformed reads the parameters of a media type like an apiserver. It returns false if an
// apiserver ignores the media type because of them, and the zero Representation if its answer is
// never cached.
func transformed(e Encoding, params map[string]string) (_ Representation, ok bool) {
	if stream := params["stream"]; stream != "" && stream != "watch" {
		return Representation{}, false
	}
	if server := params["sv"]; server != "" && server != metav1.SchemeGroupVersion.Version {
		return Representation{}, false
	}
	_, as := params["as"]
	_, g := params["g"]
	_, v := params["v"]
	if !as && !g && !v {
		return Representation{Encoding: e}, true
	}
	if params["g"] != metav1.GroupName || !metadataVersion(params["v"]) {
		return Representation{}, false
	}
	switch params["as"] {
	case kindMetadata, kindMetadataList:
		r := Representation{Encoding: e, Metadata: params["v"]}
		if !r.known() {
			return Representation{}, true
		}
		return r, true
	case "Table":
		return Representation{}, e == JSON // protobuf has no Table
	default:
		return Representation{}, false
	}
}
