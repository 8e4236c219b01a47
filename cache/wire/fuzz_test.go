package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// Seeds are made here and not kept as files: they follow the types. What a fuzzer finds
// goes to testdata, and stays.

func smallPod() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Namespace: "b", UID: "c", ResourceVersion: "1", Labels: map[string]string{"k": "v\n"}, Annotations: map[string]string{"k8s.io/initial-events-end": "true"},
	}}
	setGVK(m, schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadata"})
	return m
}

func smallList() runtime.Object {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1", Continue: "c"}, Items: []metav1.PartialObjectMetadata{*smallPod(), *smallPod()}}
	setGVK(list, metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
	return list
}

// FuzzInspectJSON compares the result of Inspect with that of a client's decoder.
func FuzzInspectJSON(f *testing.F) {
	f.Add(encode(f, encoder(f, allTypes(f), wire.JSON, true), smallPod()))
	f.Add([]byte(`{"a":[1.5e3,-0,true,false,null,"\ud83d\u0000\\",{}],"metadata":{"name":"\u0061"}}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		m, err := wire.Inspect(wire.JSON, object)
		if err != nil {
			if json.Valid(object) && errors.Is(err, wire.ErrTruncated) {
				t.Fatalf("whole, but %v", err)
			}
			return
		}
		if !json.Valid(object) {
			t.Fatal("this is not JSON")
		}
		var want metav1.PartialObjectMetadata
		if kjson.Unmarshal(object, &want) != nil {
			return // a time or a number that its type does not take
		}
		if string(m.Name) != want.Name || string(m.Namespace) != want.Namespace || string(m.UID) != string(want.UID) ||
			string(m.ResourceVersion) != want.ResourceVersion || string(m.Kind) != want.Kind || string(m.APIVersion) != want.APIVersion {
			t.Fatalf("%+v, a client reads %+v", m, want)
		}
		for k, v := range want.Annotations {
			if got, ok := m.Annotation(k); !ok || string(got) != v {
				t.Fatalf("annotation %q is %q, a client reads %q", k, got, v)
			}
		}
	})
}

// FuzzInspectProtobuf compares the result of Inspect with that of a client's decoder.
func FuzzInspectProtobuf(f *testing.F) {
	f.Add(bare(f, allTypes(f), wire.Protobuf, smallPod()))
	f.Add(encode(f, encoder(f, allTypes(f), wire.Protobuf, true), smallPod()))
	f.Fuzz(func(t *testing.T, object []byte) {
		m, err := wire.Inspect(wire.Protobuf, object)
		if err != nil {
			return
		}
		stored, err := wire.AppendBare(nil, wire.Protobuf, object)
		if err != nil {
			t.Fatal(err)
		}
		var want metav1.PartialObjectMetadata
		if want.Unmarshal(stored) != nil {
			return // something else within it
		}
		if string(m.Name) != want.Name || string(m.Namespace) != want.Namespace || string(m.UID) != string(want.UID) || string(m.ResourceVersion) != want.ResourceVersion {
			t.Fatalf("%+v, a client reads %+v", m, want)
		}
		for k, v := range want.Annotations {
			if got, ok := m.Annotation(k); !ok || string(got) != v {
				t.Fatalf("annotation %q is %q, a client reads %q", k, got, v)
			}
		}
	})
}

// FuzzSplit checks that it does not matter in which pieces a list comes, and that what
// is taken for a list can be put together and split again.
func FuzzSplit(f *testing.F) {
	for i, e := range encodings {
		f.Add(uint8(e), encode(f, encoder(f, allTypes(f), e, true), smallList()), uint16(3+i))
	}
	f.Add(uint8(wire.JSON), encode(f, encoder(f, allTypes(f), wire.JSON, true), customList(1)), uint16(50))
	f.Fuzz(func(t *testing.T, encoding uint8, body []byte, piece uint16) {
		e := wire.Encoding(encoding)
		if e != wire.JSON && e != wire.Protobuf {
			return
		}
		items, _, m, err := split(e, body, len(body)+1)
		pieces, _, m2, err2 := split(e, body, int(piece)+1)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("whole: %v, in pieces: %v", err, err2)
		}
		if err != nil {
			return
		}
		if e == wire.JSON && !json.Valid(body) {
			t.Fatal("this is not JSON")
		}
		a, b := join(t, e, m, items), join(t, e, m2, pieces)
		if !bytes.Equal(a, b) {
			t.Fatal("whole and in pieces differ")
		}
		again, _, _, err := split(e, a, 100)
		if err != nil || len(again) != len(items) {
			t.Fatalf("%d items of %d, %v, from %q", len(again), len(items), err, a)
		}
	})
}

// FuzzFrames checks that a stream comes out as it came, whatever it is, in which pieces
// it comes does not matter for its events.
func FuzzFrames(f *testing.F) {
	for _, e := range encodings {
		stream := apiserverEvent(f, allTypes(f), e, watch.Added, smallPod())
		stream = wire.AppendBookmark(stream, e, podType, "9", true)
		f.Add(uint8(e), stream, uint16(7))
	}
	f.Fuzz(func(t *testing.T, encoding uint8, stream []byte, piece uint16) {
		e := wire.Encoding(encoding)
		if e != wire.JSON && e != wire.Protobuf {
			return
		}
		whole, err := framesUpTo(t, e, bytes.NewReader(stream), 1000)
		parts, err2 := framesUpTo(t, e, &pieces{stream, int(piece) + 1}, 1000)
		if !errors.Is(err, io.EOF) || !errors.Is(err2, io.EOF) || !bytes.Equal(raw(whole), stream) || !bytes.Equal(raw(parts), stream) {
			t.Fatalf("%v, %v: %q and %q", err, err2, raw(whole), raw(parts))
		}
		events := func(all []wire.Frame) (out [][]byte) {
			for _, f := range all {
				if f.Type != "" {
					out = append(out, append([]byte(f.Type), f.Object...))
				}
			}
			return out
		}
		if a, b := bytes.Join(events(whole), nil), bytes.Join(events(parts), nil); !bytes.Equal(a, b) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

// pieces is a reader that returns at most n bytes at once.
type pieces struct {
	rest []byte
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.n, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}
