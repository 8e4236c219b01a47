package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/wire"
)

func indent(out *bytes.Buffer, compact []byte) error { return json.Indent(out, compact, "", "  ") }

func TestSingleObjectsOfEveryBuiltInTypeAreStoredBareAndComeBack(t *testing.T) {
	s := allTypes(t)
	eachListType(t, s, func(t *testing.T, kind schema.GroupVersionKind) {
		list := newList(t, s, kind, 3)
		kind.Kind = strings.TrimSuffix(kind.Kind, "List")
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			setGVK(object, kind)
			for _, e := range encodings {
				checkObject(t, s, e, kind, object)
			}
			return nil
		})
	})
}

func checkObject(t *testing.T, s *runtime.Scheme, e wire.Encoding, kind schema.GroupVersionKind, object runtime.Object) {
	t.Helper()
	body := encode(t, encoder(t, s, e, true), object)
	stored, err := wire.AppendBare([]byte("before"), e, body)
	if err != nil {
		t.Fatal(err)
	}
	stored = stored[len("before"):]
	if want := bare(t, s, e, object); !bytes.Equal(stored, want) {
		t.Fatalf("%v bare:\n%q\n%q", e, stored, want)
	}
	m, err := wire.Inspect(e, body)
	if err != nil {
		t.Fatal(err)
	}
	if again := wire.AppendBody(nil, e, m.TypeMeta(), stored); !bytes.Equal(again, body) {
		t.Fatalf("%v again:\n%q\n%q", e, again, body)
	}
	o, _ := meta.Accessor(object)
	apiVersion, name := kind.ToAPIVersionAndKind()
	if string(m.APIVersion) != apiVersion || string(m.Kind) != name || string(m.Name) != o.GetName() || string(m.Namespace) != o.GetNamespace() ||
		string(m.UID) != string(o.GetUID()) || string(m.ResourceVersion) != o.GetResourceVersion() {
		t.Errorf("%v: %s %s %s/%s %s %s of %+v", e, m.APIVersion, m.Kind, m.Namespace, m.Name, m.UID, m.ResourceVersion, o)
	}
	annotations, labels := map[string]string{}, map[string]string{}
	for k := range o.GetAnnotations() {
		if v, ok := m.Annotation(k); ok {
			annotations[k] = string(v)
		}
	}
	for k, v := range m.Labels() {
		labels[string(k)] = string(v)
	}
	if !maps.Equal(annotations, o.GetAnnotations()) || !maps.Equal(labels, o.GetLabels()) {
		t.Errorf("%v: annotations %q and labels %q of %q and %q", e, annotations, labels, o.GetAnnotations(), o.GetLabels())
	}
}

func TestAnObjectCutShortIsNeverSound(t *testing.T) {
	s := allTypes(t)
	pod := newPods(1).Items[0].DeepCopy()
	setGVK(pod, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	for _, e := range encodings {
		body := bytes.TrimSuffix(encode(t, encoder(t, s, e, true), pod), []byte("\n"))
		for n := 4; n < len(body); n++ { // less is no object at all
			if _, err := wire.Inspect(e, body[:n]); !errors.Is(err, wire.ErrTruncated) {
				t.Fatalf("%v, the first %d of %d bytes: %v", e, n, len(body), err)
			}
		}
	}
}

func TestMetadataOfJSONHoweverItIsWritten(t *testing.T) {
	for _, c := range []struct{ name, object, want string }{
		{"in the usual order", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"1"}}`, "v1 Pod b/a c 1"},
		{"with blanks", " {\n\t\"metadata\" : { \"name\" : \"a\" ,\r\n \"uid\":\"c\" } } ", "  /a c "},
		{"at the end", `{"spec":{"metadata":{"name":"wrong"}},"status":[{"metadata":{"uid":"wrong"}}],"metadata":{"name":"a"}}`, "  /a  "},
		{"after a deeper name", `{"metadata":{"ownerReferences":[{"name":"wrong","uid":"wrong"}],"labels":{"name":"wrong"},"name":"a"}}`, "  /a  "},
		{"with escapes", `{"meta\u0064ata":{"n\u0061me":"\u0061\"\\\ud83d\ude00"}}`, "  /a\"\\😀  "},
		{"with nulls", `{"kind":null,"metadata":{"name":null,"labels":null,"annotations":null}}`, "  /  "},
		{"null", `{"metadata":null}`, "  /  "},
		{"in other letters", `{"Metadata":{"name":"wrong"},"metadata":{"Name":"wrong"}}`, "  /  "},
		{"none", `{}`, "  /  "},
	} {
		m, err := wire.Inspect(wire.JSON, []byte(c.object))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := string(m.APIVersion) + " " + string(m.Kind) + " " + string(m.Namespace) + "/" + string(m.Name) + " " + string(m.UID) + " " + string(m.ResourceVersion); got != c.want {
			t.Errorf("%s: %q, expected %q", c.name, got, c.want)
		}
	}
}

func TestWhatTwoReadersCouldReadDifferentlyIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		e      wire.Encoding
		object string
		want   error
	}{
		{"metadata twice", wire.JSON, `{"metadata":{},"metadata":{}}`, wire.ErrMalformed},
		{"a name twice", wire.JSON, `{"metadata":{"name":"a","name":"b"}}`, wire.ErrMalformed},
		{"a name twice, once escaped", wire.JSON, `{"metadata":{"name":"a","nam\u0065":"b"}}`, wire.ErrMalformed},
		{"a kind twice", wire.JSON, `{"kind":"a","kind":"b"}`, wire.ErrMalformed},
		{"a name that is a number", wire.JSON, `{"metadata":{"name":1}}`, wire.ErrMalformed},
		{"metadata that is a list", wire.JSON, `{"metadata":[]}`, wire.ErrMalformed},
		{"two objects", wire.JSON, `{}{}`, wire.ErrMalformed},
		{"a list", wire.JSON, `[]`, wire.ErrMalformed},
		{"a number with a zero before it", wire.JSON, `{"a":01}`, wire.ErrMalformed},
		{"a control character", wire.JSON, "{\"a\":\"\x01\"}", wire.ErrMalformed},
		{"an escape that is none", wire.JSON, `{"a":"\x"}`, wire.ErrMalformed},
		{"more levels than are read", wire.JSON, `{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, wire.ErrTooLarge},
		{"two ObjectMeta", wire.Protobuf, "\x0a\x00\x0a\x00", wire.ErrMalformed},
		{"a group", wire.Protobuf, "\x0b\x0c", wire.ErrMalformed},
		{"field 0", wire.Protobuf, "\x02\x00", wire.ErrMalformed},
		{"a field that is longer than the object", wire.Protobuf, "\x0a\x05a", wire.ErrTruncated},
		{"compressed content", wire.Protobuf, "k8s\x00\x0a\x00\x12\x00\x1a\x04gzip\x22\x00", wire.ErrMalformed},
		{"another encoding", 0, "{}", wire.ErrEncoding},
	} {
		if _, err := wire.Inspect(c.e, []byte(c.object)); !errors.Is(err, c.want) {
			t.Errorf("%s, %v: %v, expected %v", c.name, c.e, err, c.want)
		}
	}
}

func TestAnObjectThatSaysWhatItIsIsNotToldTwice(t *testing.T) {
	pod := wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	for bare, want := range map[string]string{
		`{"metadata":{}}`:                       `{"kind":"Pod","apiVersion":"v1","metadata":{}}`,
		`{}`:                                    `{"kind":"Pod","apiVersion":"v1"}`,
		``:                                      `{"kind":"Pod","apiVersion":"v1"}`,
		`{"apiVersion":"x/v1","kind":"Widget"}`: `{"apiVersion":"x/v1","kind":"Widget"}`,
		`{"alpha":1,"apiVersion":"x/v1","kind":"W"}`:  `{"alpha":1,"apiVersion":"x/v1","kind":"W"}`,
		`{"alpha":{"kind":"not this"},"metadata":{}}`: `{"kind":"Pod","apiVersion":"v1","alpha":{"kind":"not this"},"metadata":{}}`,
	} {
		if got := wire.AppendObject(nil, wire.JSON, pod, []byte(bare)); string(got) != want {
			t.Errorf("%s becomes %s, expected %s", bare, got, want)
		}
	}
}

func TestInspectAllocatesNothing(t *testing.T) {
	s := allTypes(t)
	for _, e := range encodings {
		object := bare(t, s, e, &newPods(1).Items[0])
		fewest := math.Inf(1)
		for range 20 { // the race detector makes a sync.Pool drop some of what it gets
			fewest = min(fewest, testing.AllocsPerRun(1, func() { _, _ = wire.Inspect(e, object) }))
		}
		if fewest != 0 {
			t.Errorf("%v: %v allocations", e, fewest)
		}
	}
}
