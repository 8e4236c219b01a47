package wire_test

import (
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/cache/wire"
)

var (
	asJSON           = wire.Representation{Encoding: wire.JSON}
	asProtobuf       = wire.Representation{Encoding: wire.Protobuf}
	metadataJSON     = wire.Representation{Encoding: wire.JSON, Metadata: "v1"}
	metadataProtobuf = wire.Representation{Encoding: wire.Protobuf, Metadata: "v1"}
	oldMetadataJSON  = wire.Representation{Encoding: wire.JSON, Metadata: "v1beta1"}
	notKept          = wire.Representation{}
)

func TestRepresentationOfAContentType(t *testing.T) {
	for contentType, want := range map[string]wire.Representation{
		"application/json":                                                                         asJSON,
		"application/json;charset=utf-8":                                                           asJSON,
		"application/vnd.kubernetes.protobuf":                                                      asProtobuf,
		"application/vnd.kubernetes.protobuf;stream=watch":                                         asProtobuf,
		"application/json;stream=watch":                                                            asJSON,
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1":                             metadataJSON,
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io":      metadataProtobuf,
		"application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io":                    oldMetadataJSON,
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io": notKept,
		"application/json;as=Table;v=v1;g=meta.k8s.io":                                             notKept,
		"application/json;as=Surprise;v=v1;g=meta.k8s.io":                                          notKept,
		"application/json;v=v1":                                                                    notKept,
		"application/yaml":                                                                         notKept,
		"application/cbor":                                                                         notKept,
		"application/cbor-seq":                                                                     notKept,
		"text/plain":                                                                               notKept,
		"":                                                                                         notKept,
		"/;=":                                                                                      notKept,
	} {
		if got := wire.ParseContentType(contentType); got != want {
			t.Errorf("%q is %v, expected %v", contentType, got, want)
		}
	}
}

func TestTheTextOfARepresentationComesBack(t *testing.T) {
	for _, r := range []wire.Representation{asJSON, asProtobuf, metadataJSON, metadataProtobuf, oldMetadataJSON} {
		if got, err := wire.ParseRepresentation(r.String()); got != r || err != nil || !got.Cacheable() {
			t.Errorf("%q came back as %v, %v", r, got, err)
		}
		if got := wire.ParseContentType(r.WatchContentType()); got.Encoding != r.Encoding {
			t.Errorf("a watch in %v is %v", r, got)
		}
	}
	for _, s := range []string{"", "unknown", "JSON", "json;as=PartialObjectMetadata;v=", "json;as=PartialObjectMetadata;v=v2", "protobuf;as=PartialObjectMetadata;v=v1beta1", "json "} {
		if got, err := wire.ParseRepresentation(s); err == nil || got.Cacheable() {
			t.Errorf("%q is read as %v", s, got)
		}
	}
}

func TestWhatIsHeldAgainstARepresentation(t *testing.T) {
	for _, c := range []struct {
		r    wire.Representation
		t    wire.TypeMeta
		want bool
	}{
		{asJSON, wire.TypeMeta{APIVersion: "v1", Kind: "PodList"}, true},
		{asProtobuf, wire.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, true},
		{metadataJSON, wire.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, true},
		{metadataJSON, wire.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, true},
		{metadataJSON, wire.TypeMeta{APIVersion: "meta.k8s.io/v1beta1", Kind: "PartialObjectMetadataList"}, false},
		{metadataJSON, wire.TypeMeta{APIVersion: "v1", Kind: "PodList"}, false},
		{asJSON, wire.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, false},
		{asJSON, wire.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}, false},
		{notKept, wire.TypeMeta{APIVersion: "v1", Kind: "PodList"}, false},
	} {
		if got := c.r.Holds(c.t); got != c.want {
			t.Errorf("%v holds %v: %v", c.r, c.t, got)
		}
	}
}

const (
	pb         = "application/vnd.kubernetes.protobuf"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asOldTable = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
	asMetadata = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	kubectl    = asTable + "," + asOldTable + ",application/json"
	kubelet    = pb + ",application/json"
	metaclient = pb + asMetadata + ",application/json" + asMetadata + ",application/json"
)

func TestAcceptIsReadAsApiserversDo(t *testing.T) {
	for _, c := range []struct {
		name, accept string
		want         []wire.Representation
	}{
		{"nothing", "", []wire.Representation{asJSON}},
		{"anything", "*/*", []wire.Representation{asJSON, asProtobuf}},
		{"anything, in short", "*", []wire.Representation{asJSON, asProtobuf}},
		{"any application", "application/*", []wire.Representation{asJSON, asProtobuf}},
		{"kubelet", kubelet, []wire.Representation{asProtobuf, asJSON}},
		{"kubectl get", kubectl, []wire.Representation{notKept, notKept, asJSON}},
		{"client-go's metadata client", metaclient, []wire.Representation{metadataProtobuf, metadataJSON, asJSON}},
		{"quality", pb + ";q=0.5, application/json;q=0.9", []wire.Representation{asJSON, asProtobuf}},
		{"the more specific before any", "*/*, " + pb, []wire.Representation{asProtobuf, asJSON, asProtobuf}},
		{"quality that is no number is 0", pb + ";q=x,application/json;q=0.1", []wire.Representation{asJSON, asProtobuf}},
		{"a browser", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", []wire.Representation{asJSON, asProtobuf}},
		{"YAML", "application/yaml,application/json", []wire.Representation{notKept, asJSON}},
		{"CBOR, which is off", "application/cbor,application/json", []wire.Representation{asJSON}},
		{"another stream", pb + ";stream=other,application/json;stream=watch", []wire.Representation{asJSON}},
		{"another server version", pb + ";sv=v2,application/json;sv=v1", []wire.Representation{asJSON}},
		{"a Table in protobuf, which there is not", pb + ";as=Table;v=v1;g=meta.k8s.io,application/json", []wire.Representation{asJSON}},
		{"something unknown", "application/json;as=Surprise;v=v1;g=meta.k8s.io," + pb, []wire.Representation{asProtobuf}},
		{"what is no media type", "json,application/json/1,,;;=," + pb, []wire.Representation{asProtobuf}},
		{"blanks", " application/json ; as = PartialObjectMetadata ; g=meta.k8s.io ; v = v1 ", []wire.Representation{metadataJSON}},
		{"other letters", "Application/JSON", nil},
	} {
		if got := wire.Acceptable(c.accept); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
		}
	}
}

func TestTheFirstAcceptableThatIsAtHand(t *testing.T) {
	for _, c := range []struct {
		accept string
		atHand []wire.Representation
		want   wire.Representation
	}{
		{kubelet, []wire.Representation{asJSON, asProtobuf}, asProtobuf},
		{kubelet, []wire.Representation{asJSON}, asJSON},
		{kubelet, []wire.Representation{metadataJSON}, notKept},
		{kubectl, []wire.Representation{asProtobuf, asJSON}, asJSON},
		{kubectl, []wire.Representation{asProtobuf, notKept}, notKept},
		{"", []wire.Representation{asProtobuf, asJSON}, asJSON},
		{"*/*", []wire.Representation{asProtobuf}, asProtobuf},
	} {
		got, ok := wire.Negotiate(c.accept, func(r wire.Representation) bool { return slices.Contains(c.atHand, r) })
		if got != c.want || ok != c.want.Cacheable() {
			t.Errorf("%q of %v: %v, %v", c.accept, c.atHand, got, ok)
		}
	}
}

func TestWhatAnAnswerIs(t *testing.T) {
	for _, c := range []struct {
		accept, contentType string
		want                wire.Representation
	}{
		{kubelet, pb, asProtobuf},
		{kubelet, pb + ";stream=watch", asProtobuf},
		{kubelet, "application/json", asJSON}, // a custom resource
		{kubectl, "application/json", notKept},
		{metaclient, pb, metadataProtobuf},
		{metaclient, "application/json", metadataJSON},
		{"", "application/json", asJSON},
		{"application/json", "application/yaml", notKept},
	} {
		if got := wire.Answered(c.accept, c.contentType); got != c.want {
			t.Errorf("%q answered with %q: %v, expected %v", c.accept, c.contentType, got, c.want)
		}
	}
}
