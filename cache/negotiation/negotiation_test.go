package negotiation_test

import (
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/wire"
)

var (
	asJSON           = negotiation.Representation{Encoding: wire.JSON}
	asProtobuf       = negotiation.Representation{Encoding: wire.Protobuf}
	metadataJSON     = negotiation.Representation{Encoding: wire.JSON, Metadata: "v1"}
	metadataProtobuf = negotiation.Representation{Encoding: wire.Protobuf, Metadata: "v1"}
	oldMetadataJSON  = negotiation.Representation{Encoding: wire.JSON, Metadata: "v1beta1"}
	notKept          = negotiation.Representation{}
)

func TestRepresentationOfAContentType(t *testing.T) {
	for contentType, want := range map[string]negotiation.Representation{
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
		if got := negotiation.ParseContentType(contentType); got != want {
			t.Errorf("%q is %v, expected %v", contentType, got, want)
		}
	}
}

func TestTheTextOfARepresentationComesBack(t *testing.T) {
	for _, r := range []negotiation.Representation{asJSON, asProtobuf, metadataJSON, metadataProtobuf, oldMetadataJSON} {
		if got, err := negotiation.ParseRepresentation(r.String()); got != r || err != nil || !got.Cacheable() {
			t.Errorf("%q came back as %v, %v", r, got, err)
		}
		if got := negotiation.ParseContentType(r.WatchContentType()); got.Encoding != r.Encoding {
			t.Errorf("a watch in %v is %v", r, got)
		}
	}
	for _, s := range []string{"", "unknown", "JSON", "json;as=PartialObjectMetadata;v=", "json;as=PartialObjectMetadata;v=v2", "protobuf;as=PartialObjectMetadata;v=v1beta1", "json "} {
		if got, err := negotiation.ParseRepresentation(s); err == nil || got.Cacheable() {
			t.Errorf("%q is read as %v", s, got)
		}
	}
}

func TestWhatIsHeldAgainstARepresentation(t *testing.T) {
	for _, c := range []struct {
		r    negotiation.Representation
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
		want         []negotiation.Representation
	}{
		{"nothing", "", []negotiation.Representation{asJSON}},
		{"anything", "*/*", []negotiation.Representation{asJSON, asProtobuf}},
		{"anything, in short", "*", []negotiation.Representation{asJSON, asProtobuf}},
		{"any application", "application/*", []negotiation.Representation{asJSON, asProtobuf}},
		{"kubelet", kubelet, []negotiation.Representation{asProtobuf, asJSON}},
		{"kubectl get", kubectl, []negotiation.Representation{notKept, notKept, asJSON}},
		{"client-go's metadata client", metaclient, []negotiation.Representation{metadataProtobuf, metadataJSON, asJSON}},
		{"quality", pb + ";q=0.5, application/json;q=0.9", []negotiation.Representation{asJSON, asProtobuf}},
		{"the more specific before any", "*/*, " + pb, []negotiation.Representation{asProtobuf, asJSON, asProtobuf}},
		{"quality that is no number is 0", pb + ";q=x,application/json;q=0.1", []negotiation.Representation{asJSON, asProtobuf}},
		{"a browser", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", []negotiation.Representation{asJSON, asProtobuf}},
		{"YAML", "application/yaml,application/json", []negotiation.Representation{notKept, asJSON}},
		{"CBOR, which is off", "application/cbor,application/json", []negotiation.Representation{asJSON}},
		{"another stream", pb + ";stream=other,application/json;stream=watch", []negotiation.Representation{asJSON}},
		{"another server version", pb + ";sv=v2,application/json;sv=v1", []negotiation.Representation{asJSON}},
		{"a Table in protobuf, which there is not", pb + ";as=Table;v=v1;g=meta.k8s.io,application/json", []negotiation.Representation{asJSON}},
		{"something unknown", "application/json;as=Surprise;v=v1;g=meta.k8s.io," + pb, []negotiation.Representation{asProtobuf}},
		{"what is no media type", "json,application/json/1,,;;=," + pb, []negotiation.Representation{asProtobuf}},
		{"blanks", " application/json ; as = PartialObjectMetadata ; g=meta.k8s.io ; v = v1 ", []negotiation.Representation{metadataJSON}},
		{"other letters", "Application/JSON", nil},
	} {
		if got := negotiation.Acceptable(c.accept); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
		}
	}
}

func TestTheFirstAcceptableThatIsAtHand(t *testing.T) {
	for _, c := range []struct {
		accept string
		atHand []negotiation.Representation
		want   negotiation.Representation
	}{
		{kubelet, []negotiation.Representation{asJSON, asProtobuf}, asProtobuf},
		{kubelet, []negotiation.Representation{asJSON}, asJSON},
		{kubelet, []negotiation.Representation{metadataJSON}, notKept},
		{kubectl, []negotiation.Representation{asProtobuf, asJSON}, asJSON},
		{kubectl, []negotiation.Representation{asProtobuf, notKept}, notKept},
		{"", []negotiation.Representation{asProtobuf, asJSON}, asJSON},
		{"*/*", []negotiation.Representation{asProtobuf}, asProtobuf},
	} {
		got, ok := negotiation.Select(c.accept, func(r negotiation.Representation) bool { return slices.Contains(c.atHand, r) })
		if got != c.want || ok != c.want.Cacheable() {
			t.Errorf("%q of %v: %v, %v", c.accept, c.atHand, got, ok)
		}
	}
}

func TestWhatAnAnswerIs(t *testing.T) {
	for _, c := range []struct {
		accept, contentType string
		want                negotiation.Representation
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
		if got := negotiation.Answered(c.accept, c.contentType); got != c.want {
			t.Errorf("%q answered with %q: %v, expected %v", c.accept, c.contentType, got, c.want)
		}
	}
}
