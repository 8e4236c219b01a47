package convert_test

import (
	"bytes"
	"errors"
	"math/rand"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// stable are the versions without alpha and beta, in all of which client-go's types are
// known here, too: a new one must be added.
var stable = regexp.MustCompile(`^v[0-9]+$`)

var podType = wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}

// written is object as an apiserver sends it, in the bare form.
func written(tb testing.TB, e wire.Encoding, object runtime.Object) []byte {
	tb.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), e.MediaType())
	whole, err := runtime.Encode(info.Serializer, object)
	if err != nil {
		tb.Fatalf("encode %T: %v", object, err)
	}
	bare, err := wire.AppendBare(nil, e, bytes.TrimSuffix(whole, []byte("\n")))
	if err != nil {
		tb.Fatalf("bare %T: %v", object, err)
	}
	return bare
}

func TestEveryStableTypeConvertsToWhatAnAPIServerWouldHaveSent(t *testing.T) {
	fuzz := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), scheme.Codecs).NumElements(1, 2)
	types := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		object, err := scheme.Scheme.New(gvk)
		if err != nil || gvk.Version == runtime.APIVersionInternal || !stable.MatchString(gvk.Version) {
			continue
		}
		if _, err := meta.Accessor(object); err != nil {
			continue // options, lists, reviews without metadata
		}
		types++
		fuzz.Fill(object)
		object.GetObjectKind().SetGroupVersionKind(gvk)
		typeMeta := typeOf(gvk)

		// Protobuf knows no empty slices: what has been through it is what an apiserver has.
		protobuf := written(t, wire.Protobuf, object)
		stored, err := convert.FromBare(wire.Protobuf, typeMeta, protobuf)
		if err != nil {
			t.Fatalf("%s: %v", gvk, err)
		}
		protobuf, json := written(t, wire.Protobuf, stored), written(t, wire.JSON, stored)

		got, err := convert.Bare(wire.Protobuf, wire.JSON, typeMeta, protobuf)
		if err != nil || !bytes.Equal(got, json) {
			t.Errorf("%s, protobuf to JSON: %v\n%s\nwant\n%s", gvk, err, got, json)
		}
		back, err := convert.Bare(wire.JSON, wire.Protobuf, typeMeta, json)
		if err != nil {
			t.Errorf("%s, JSON to protobuf: %v", gvk, err)
			continue
		}
		again, err := convert.Bare(wire.Protobuf, wire.JSON, typeMeta, back)
		if err != nil || !bytes.Equal(again, json) {
			t.Errorf("%s, JSON to protobuf and back: %v\n%s\nwant\n%s", gvk, err, again, json)
		}
	}
	if types < 50 {
		t.Fatalf("only %d types were tried", types)
	}
}

func TestMetadataOfAnObject(t *testing.T) {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", ResourceVersion: "7", Labels: map[string]string{"k": "v"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
	for _, from := range []wire.Encoding{wire.Protobuf, wire.JSON} {
		for _, to := range []wire.Encoding{wire.Protobuf, wire.JSON} {
			got, err := convert.Metadata(from, to, written(t, from, pod))
			if err != nil {
				t.Fatalf("%s to %s: %v", from, to, err)
			}
			want := written(t, to, &metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
				ObjectMeta: pod.ObjectMeta,
			})
			if !bytes.Equal(got, want) {
				t.Errorf("%s to %s: %q, want %q", from, to, got, want)
			}
			other := wire.JSON + wire.Protobuf - to
			if _, err := convert.Bare(to, other, convert.MetadataType, got); err != nil {
				t.Errorf("from %s to %s: %v", to, other, err)
			}
		}
	}
}

func TestMetadataOfACustomResourceNeedsNoType(t *testing.T) {
	custom := `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","resourceVersion":"7"},"spec":{"x":1.5}}`
	got, err := convert.Metadata(wire.JSON, wire.JSON, []byte(custom))
	if want := `{"metadata":{"name":"a","resourceVersion":"7"}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestWhatCannotBeConverted(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to wire.Encoding
		typeMeta wire.TypeMeta
		bare     string
		want     error
	}{
		{"a custom resource", wire.JSON, wire.Protobuf, wire.TypeMeta{APIVersion: "example.com/v1", Kind: "Thing"}, `{}`, convert.ErrUnknownType},
		{"a type of a beta version", wire.JSON, wire.Protobuf, wire.TypeMeta{APIVersion: "policy/v1beta1", Kind: "Eviction"}, `{}`, convert.ErrUnknownType},
		{"a version that makes no sense", wire.JSON, wire.Protobuf, wire.TypeMeta{APIVersion: "a/b/c", Kind: "Pod"}, `{}`, convert.ErrUnknownType},
		{"protobuf that is none", wire.Protobuf, wire.JSON, podType, "\x0a\x7f", wire.ErrMalformed},
		{"JSON that is cut short", wire.JSON, wire.Protobuf, podType, `{"metadata":{`, wire.ErrMalformed},
		{"JSON with a string in place of a number", wire.JSON, wire.Protobuf, podType, `{"spec":{"priority":"x"}}`, wire.ErrMalformed},
		{"an encoding that is not known", 0, wire.JSON, podType, `{}`, wire.ErrEncoding},
		{"to an encoding that is not known", wire.JSON, 0, podType, `{}`, wire.ErrEncoding},
	} {
		if got, err := convert.Bare(c.from, c.to, c.typeMeta, []byte(c.bare)); !errors.Is(err, c.want) {
			t.Errorf("%s: %q, %v; want %v", c.name, got, err, c.want)
		}
	}
}

func TestBodies(t *testing.T) {
	event := &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Message:    "<m>",
	}
	expected := wire.TypeMeta{APIVersion: "v1", Kind: "Event"}
	for _, c := range []struct{ name, accept, contentType string }{
		{"a kubelet", "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"},
		{"a client of JSON", "application/json, */*", "application/json"},
		{"a client that does not say", "", "application/json"},
		{"kubectl, which would like a Table", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json"},
	} {
		contentType, body, err := convert.EncodeBody(c.accept, event)
		if err != nil || contentType != c.contentType {
			t.Errorf("%s: %q, %v", c.name, contentType, err)
		}
		back, err := convert.DecodeBody(contentType, body, wire.TypeMeta{})
		if got, ok := back.(*corev1.Event); err != nil || !ok || got.Message != event.Message || got.Kind != "Event" {
			t.Errorf("%s: came back as %v, %v", c.name, back, err)
		}
	}

	if back, err := convert.DecodeBody("", []byte(` { "metadata": {"name": "a"} } `), expected); err != nil || back.(*corev1.Event).Name != "a" {
		t.Errorf("JSON without a kind: %v, %v", back, err)
	}
	if _, _, err := convert.EncodeBody("text/plain", event); !errors.Is(err, convert.ErrNotAcceptable) {
		t.Errorf("a client that accepts neither: %v", err)
	}
	for _, contentType := range []string{"application/yaml", "application/cbor", "x"} {
		if _, err := convert.DecodeBody(contentType, []byte("{}"), expected); !errors.Is(err, convert.ErrMediaType) {
			t.Errorf("a body of %s: %v", contentType, err)
		}
	}
}

func FuzzDecodeBody(f *testing.F) {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		contentType, body, err := convert.EncodeBody(accept, pod)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(contentType, body)
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		object, err := convert.DecodeBody(contentType, body, podType)
		if err != nil {
			return
		}
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			if _, _, err := convert.EncodeBody(accept, object); err != nil {
				t.Errorf("decoded, but not encoded as %s: %v", accept, err)
			}
		}
	})
}

func typeOf(gvk schema.GroupVersionKind) (t wire.TypeMeta) {
	t.APIVersion, t.Kind = gvk.ToAPIVersionAndKind()
	return t
}
