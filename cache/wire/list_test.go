package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// growList makes a list hold n empty items.
func growList(list runtime.Object, n int) error {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	slice := reflect.ValueOf(items).Elem()
	slice.Set(reflect.MakeSlice(slice.Type(), n, n))
	if n == 0 && strings.HasPrefix(slice.Type().Elem().Name(), "PartialObjectMetadata") {
		slice.SetZero() // an apiserver leaves these nil, and no others
	}
	return nil
}

// split feeds body in pieces and returns the items as they came.
func split(e wire.Encoding, body []byte, piece int) (items [][]byte, metas []string, m wire.ListMeta, err error) {
	s, err := wire.NewSplitter(e, func(item []byte, m *wire.Meta) error {
		items = append(items, bytes.Clone(item))
		metas = append(metas, fmt.Sprintf("%s/%s %s %s", m.Namespace, m.Name, m.UID, m.ResourceVersion))
		return nil
	})
	if err != nil {
		return nil, nil, m, err
	}
	scratch := make([]byte, piece)
	for len(body) > 0 {
		n := copy(scratch, body)
		_, _ = s.Write(scratch[:n])
		clear(scratch) // nothing may point into what was written before
		body = body[n:]
	}
	m, err = s.Close()
	return items, metas, m, err
}

// join stores the items in their bare form and writes the list again.
func join(tb testing.TB, e wire.Encoding, m wire.ListMeta, items [][]byte) []byte {
	tb.Helper()
	var sizes wire.ItemSizes
	var stored [][]byte
	for _, item := range items {
		b, err := wire.AppendBare(nil, e, item)
		if err != nil {
			tb.Fatal(err)
		}
		stored = append(stored, b)
		sizes.Add(len(b))
	}
	var out bytes.Buffer
	w, err := wire.NewListWriter(&out, e, m, sizes)
	if err != nil {
		tb.Fatal(err)
	}
	for _, item := range stored {
		if err := w.WriteItem(item); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if w.Size() != int64(out.Len()) {
		tb.Errorf("%d bytes announced, %d written", w.Size(), out.Len())
	}
	return out.Bytes()
}

func TestListsOfEveryBuiltInTypeComeApartAndTogether(t *testing.T) {
	s := allTypes(t)
	eachListType(t, s, func(t *testing.T, kind schema.GroupVersionKind) {
		for _, e := range encodings {
			if e == wire.Protobuf && kind == oldMetadataList {
				continue // TestListsWithTheirFieldsTheOtherWayRoundAreRefused
			}
			for _, n := range []int{0, 3} {
				list := newList(t, s, kind, n)
				body := encode(t, encoder(t, s, e, true), list)
				if whole := encode(t, encoder(t, s, e, false), list); !bytes.Equal(body, whole) {
					t.Fatal("the apiserver's own two ways to write a list differ")
				}
				checkList(t, s, e, list, body)
			}
		}
	})
}

// oldMetadataList is the one list whose items are field 1 and whose metadata is field 2.
var oldMetadataList = metav1beta1.SchemeGroupVersion.WithKind("PartialObjectMetadataList")

func TestListsWithTheirFieldsTheOtherWayRoundAreRefused(t *testing.T) {
	s := allTypes(t)
	for n := range 3 {
		body := encode(t, encoder(t, s, wire.Protobuf, false), newList(t, s, oldMetadataList, n))
		if _, _, _, err := split(wire.Protobuf, body, len(body)); !errors.Is(err, wire.ErrNotList) {
			t.Errorf("%d items: %v", n, err)
		}
	}
}

func checkList(t *testing.T, s *runtime.Scheme, e wire.Encoding, list runtime.Object, body []byte) {
	t.Helper()
	objects, err := meta.ExtractList(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range []int{1, 1000, len(body)} {
		items, metas, m, err := split(e, body, piece)
		if err != nil {
			t.Fatalf("%v in pieces of %d: %v", e, piece, err)
		}
		if len(items) != len(objects) {
			t.Fatalf("%v in pieces of %d: %d items of %d", e, piece, len(items), len(objects))
		}
		for i, object := range objects {
			stored, err := wire.AppendBare(nil, e, items[i])
			if err != nil {
				t.Fatal(err)
			}
			if want := bare(t, s, e, object); !bytes.Equal(stored, want) {
				t.Fatalf("%v item %d:\n%q\n%q", e, i, stored, want)
			}
			o, _ := meta.Accessor(object)
			if want := fmt.Sprintf("%s/%s %s %s", o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()); metas[i] != want {
				t.Errorf("%v item %d: metadata %q, expected %q", e, i, metas[i], want)
			}
		}
		l, _ := meta.ListAccessor(list)
		if m.ResourceVersion != l.GetResourceVersion() || m.Continue != l.GetContinue() || *m.RemainingItemCount != *l.GetRemainingItemCount() {
			t.Errorf("%v: list metadata %+v of %+v", e, m, l)
		}
		if again := join(t, e, m, items); !bytes.Equal(again, body) {
			t.Fatalf("%v put together again:\n%q\n%q", e, again, body)
		}
	}
}

// customList is a list as the apiserver has it for a CustomResourceDefinition.
func customList(n int) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("example.com/v1")
	list.SetKind("WidgetList")
	list.SetResourceVersion("77")
	list.SetContinue("")
	for i := range n {
		list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{
			"alpha": map[string]any{"metadata": map[string]any{"name": "not this"}}, "apiVersion": "example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"name": fmt.Sprint("w", i), "namespace": "default", "uid": "u", "resourceVersion": fmt.Sprint(i)},
			"spec":     map[string]any{"text": "\"]},{[ \u2028 <&> \\ é\n", "n": int64(1), "f": 1.5e30, "list": []any{}, "nothing": nil, "on": true},
		}})
	}
	return list
}

func TestListsOfCustomResources(t *testing.T) {
	s := allTypes(t)
	for _, n := range []int{0, 1, 3} {
		for _, streamed := range []bool{true, false} {
			body := encode(t, encoder(t, s, wire.JSON, streamed), customList(n))
			for _, piece := range []int{1, 9, len(body)} {
				items, metas, m, err := split(wire.JSON, body, piece)
				if err != nil {
					t.Fatal(err)
				}
				if len(items) != n || n > 0 && metas[n-1] != fmt.Sprintf("default/w%d u %d", n-1, n-1) || !m.Sorted || m.ResourceVersion != "77" {
					t.Errorf("items %v of %+v", metas, m)
				}
				if again := join(t, wire.JSON, m, items); !bytes.Equal(again, body) {
					t.Errorf("put together again:\n%s\n%s", again, body)
				}
			}
		}
	}
}

func TestPrettyListsAreStoredCompact(t *testing.T) {
	s := allTypes(t)
	list := newPods(2)
	compact := encode(t, encoder(t, s, wire.JSON, true), list)
	var pretty bytes.Buffer
	if err := indent(&pretty, compact); err != nil {
		t.Fatal(err)
	}
	items, _, m, err := split(wire.JSON, pretty.Bytes(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if again := join(t, wire.JSON, m, items); !bytes.Equal(again, compact) {
		t.Errorf("put together again:\n%s\n%s", again, compact)
	}
}

func TestAListCutShortIsNeverComplete(t *testing.T) {
	s := allTypes(t)
	metadata := newList(t, s, metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"), 2)
	for name, list := range map[string]runtime.Object{"pods": newPods(1), "no pods": newPods(0), "metadata": metadata, "custom": customList(2)} {
		for _, e := range encodings {
			if name == "custom" && e == wire.Protobuf {
				continue
			}
			body := encode(t, encoder(t, s, e, true), list)
			whole := len(bytes.TrimSuffix(body, []byte("\n"))) // the newline is no part of JSON
			if e == wire.Protobuf {
				whole = len(body)
			}
			for n := range whole {
				if _, _, _, err := split(e, body[:n], 512); !errors.Is(err, wire.ErrTruncated) {
					t.Fatalf("%s in %v, the first %d of %d bytes: %v", name, e, n, len(body), err)
				}
			}
		}
	}
}

func TestBodiesThatAreNoListsAreRefused(t *testing.T) {
	s := allTypes(t)
	pod := newPods(1).Items[0].DeepCopy()
	setGVK(pod, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	bodies := encode(t, encoder(t, s, wire.Protobuf, true), newPods(1))
	for _, c := range []struct {
		name string
		e    wire.Encoding
		body string
		want error
	}{
		{"a single object", wire.Protobuf, string(encode(t, encoder(t, s, wire.Protobuf, true), pod)), wire.ErrNotList},
		{"a single object", wire.JSON, string(encode(t, encoder(t, s, wire.JSON, true), pod)), wire.ErrNotList},
		{"nothing", wire.Protobuf, "", wire.ErrTruncated},
		{"nothing", wire.JSON, "", wire.ErrTruncated},
		{"something after the list", wire.Protobuf, string(bodies) + "\x0a\x00", wire.ErrMalformed},
		{"two lists", wire.Protobuf, string(bodies) + string(bodies[4:]), wire.ErrMalformed},
		{"a prefix of something else", wire.Protobuf, "k8s\x01aaaaaaaaaa", wire.ErrMalformed},
		{"a length beyond all limits", wire.Protobuf, "k8s\x00\x0a\xff\xff\xff\xff\x7f", wire.ErrTooLarge},
		{"a length that is no number", wire.Protobuf, "k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", wire.ErrMalformed},
		{"an item that reaches beyond the list", wire.Protobuf, "k8s\x00\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x03\x12\x05aaaaaaaa", wire.ErrMalformed},
		{"something after the list", wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}{`, wire.ErrMalformed},
		{"no metadata", wire.JSON, `{"kind":"PodList","apiVersion":"v1","items":[]}`, wire.ErrNotList},
		{"no items", wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{}}`, wire.ErrNotList},
		{"items twice", wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[],"items":[]}`, wire.ErrMalformed},
		{"items twice, once escaped", wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[],"item\u0073":[]}`, wire.ErrMalformed},
		{"a member that could not be written again", wire.JSON, `{"kind":"PodList","more":1,"apiVersion":"v1","metadata":{},"items":[]}`, wire.ErrNotList},
		{"metadata that could not be written again", wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{"shardInfo":{}},"items":[]}`, wire.ErrNotList},
		{"items that are no objects", wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[1]}`, wire.ErrNotList},
		{"a comma after the last item", wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{},]}`, wire.ErrNotList},
		{"no comma between items", wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{}{}]}`, wire.ErrMalformed},
		{"brackets that do not match", wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"a":[}]}]}`, wire.ErrMalformed},
		{"an item that is no JSON", wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"a":tru}]}`, wire.ErrMalformed},
		{"a Table", wire.JSON, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"columnDefinitions":[],"rows":[]}`, wire.ErrNotList},
	} {
		for _, piece := range []int{1, 5, max(1, len(c.body))} {
			if _, _, _, err := split(c.e, []byte(c.body), piece); !errors.Is(err, c.want) {
				t.Errorf("%s, %v in pieces of %d: %v, expected %v", c.name, c.e, piece, err, c.want)
			}
		}
	}
}

func TestAnItemBeyondTheLimitIsNotHeld(t *testing.T) {
	s := allTypes(t)
	for _, e := range encodings {
		body := encode(t, encoder(t, s, e, true), newPods(2))
		for _, piece := range []int{10, len(body)} {
			emitted := 0
			sp, err := wire.NewLimitedSplitter(e, 2000, func([]byte, *wire.Meta) error { emitted++; return nil })
			if err != nil {
				t.Fatal(err)
			}
			for b := body; len(b) > 0; b = b[min(piece, len(b)):] {
				_, _ = sp.Write(b[:min(piece, len(b))])
			}
			if _, err := sp.Close(); !errors.Is(err, wire.ErrTooLarge) || emitted != 0 {
				t.Errorf("%v: %v, %d items", e, err, emitted)
			}
		}
	}
}

func TestAnErrorOfEmitEndsTheSplitting(t *testing.T) {
	s := allTypes(t)
	for _, e := range encodings {
		for _, mine := range []error{errors.New("disk full"), wire.ErrTruncated} {
			calls := 0
			sp, _ := wire.NewSplitter(e, func([]byte, *wire.Meta) error { calls++; return mine })
			_, failed := sp.Write(encode(t, encoder(t, s, e, true), newPods(3)))
			if _, err := sp.Close(); !errors.Is(err, mine) || calls != 1 || !errors.Is(failed, mine) {
				t.Errorf("%v: %v after %d calls", e, err, calls)
			}
		}
	}
}

func TestAListWriterHoldsItemsAgainstTheirSizes(t *testing.T) {
	for _, e := range encodings {
		var sizes wire.ItemSizes
		sizes.Add(2)
		const less, right, more = "", "{}", "{} "
		for items, want := range map[string]bool{less: false, right: true, more: false} {
			w, err := wire.NewListWriter(&bytes.Buffer{}, e, wire.ListMeta{TypeMeta: wire.TypeMeta{APIVersion: "v1", Kind: "PodList"}}, sizes)
			if err != nil {
				t.Fatal(err)
			}
			if items != "" {
				_ = w.WriteItem([]byte(items))
			}
			if err := w.Close(); (err == nil) != want {
				t.Errorf("%v, %q: %v", e, items, err)
			}
		}
	}
}

func TestTheListOfAnObject(t *testing.T) {
	s := allTypes(t)
	custom := customList(1).Items[0].DeepCopy()
	for _, c := range []struct {
		e      wire.Encoding
		object runtime.Object
		like   runtime.Object
	}{
		{wire.JSON, pods(1)[0], newPods(0)},
		{wire.Protobuf, pods(1)[0], newPods(0)},
		{wire.JSON, smallPod(), newList(t, s, metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"), 0)},
		{wire.JSON, custom, customList(0)},
	} {
		_, _, want, err := split(c.e, encode(t, encoder(t, s, c.e, true), c.like), 100)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.ListMetaOf(c.e, encode(t, encoder(t, s, c.e, true), c.object))
		if err != nil || got.TypeMeta != want.TypeMeta || got.Sorted != want.Sorted {
			t.Errorf("%v: %+v, %v, expected %+v", c.e, got, err, want)
		}
	}
	if m, err := wire.ListMetaOf(wire.JSON, []byte(`{"metadata":{}}`)); err == nil {
		t.Errorf("an object that does not say what it is has the list %+v", m)
	}
}
