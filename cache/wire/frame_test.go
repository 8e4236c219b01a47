package wire_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// apiserverEvent is a frame as an apiserver writes it.
func apiserverEvent(tb testing.TB, s *runtime.Scheme, e wire.Encoding, event watch.EventType, object runtime.Object) []byte {
	tb.Helper()
	info, _ := runtime.SerializerInfoForMediaType(serializer.NewCodecFactory(s).SupportedMediaTypes(), e.MediaType())
	var out bytes.Buffer
	w := info.StreamSerializer.NewFrameWriter(&out)
	frame := &metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: encode(tb, info.Serializer, object)}}
	b := encode(tb, info.StreamSerializer.Serializer, frame)
	if _, err := w.Write(b); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// frames reads a stream to its end. Slices are copied, but Meta.
func frames(tb testing.TB, e wire.Encoding, r io.Reader) (out []wire.Frame, err error) {
	tb.Helper()
	return framesUpTo(tb, e, r, wire.MaxSize)
}

func framesUpTo(tb testing.TB, e wire.Encoding, r io.Reader, most int) (out []wire.Frame, err error) {
	tb.Helper()
	fr, err := wire.NewLimitedFrameReader(r, e, most)
	if err != nil {
		tb.Fatal(err)
	}
	for {
		f, err := fr.Next()
		if err != nil {
			return out, err
		}
		f.Raw, f.Object = bytes.Clone(f.Raw), bytes.Clone(f.Object)
		out = append(out, f)
	}
}

func raw(all []wire.Frame) []byte {
	var out []byte
	for _, f := range all {
		out = append(out, f.Raw...)
	}
	return out
}

func TestEventsOfEveryBuiltInType(t *testing.T) {
	s := allTypes(t)
	eachListType(t, s, func(t *testing.T, kind schema.GroupVersionKind) {
		list := newList(t, s, kind, 2)
		kind.Kind = strings.TrimSuffix(kind.Kind, "List")
		types := []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark}
		for _, e := range encodings {
			_ = meta.EachListItem(list, func(object runtime.Object) error {
				setGVK(object, kind)
				var stream []byte
				for _, event := range types {
					frame := apiserverEvent(t, s, e, event, object)
					stream = append(stream, frame...)
					apiVersion, name := kind.ToAPIVersionAndKind()
					if again := wire.AppendEvent(nil, e, event, wire.TypeMeta{APIVersion: apiVersion, Kind: name}, bare(t, s, e, object)); !bytes.Equal(again, frame) {
						t.Fatalf("%v %s:\n%q\n%q", e, event, again, frame)
					}
				}
				got, err := frames(t, e, bytes.NewReader(stream))
				if !errors.Is(err, io.EOF) || len(got) != len(types) || !bytes.Equal(raw(got), stream) {
					t.Fatalf("%v: %d frames, %v", e, len(got), err)
				}
				body := bytes.TrimSuffix(encode(t, encoder(t, s, e, true), object), []byte("\n"))
				for i, f := range got {
					if f.Type != types[i] || f.Err != nil || f.More || !bytes.Equal(f.Object, body) {
						t.Errorf("%v frame %d: %s, %v, %q", e, i, f.Type, f.Err, f.Object)
					}
				}
				return nil
			})
		}
	})
}

func pods(n int) []runtime.Object {
	var out []runtime.Object
	for i := range newPods(n).Items {
		pod := newPods(n).Items[i].DeepCopy()
		setGVK(pod, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
		out = append(out, pod)
	}
	return out
}

var podType = wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}

func TestFramesInPiecesOfAnySize(t *testing.T) {
	s := allTypes(t)
	for _, e := range encodings {
		var stream []byte
		for _, pod := range pods(5) {
			stream = append(stream, apiserverEvent(t, s, e, watch.Added, pod)...)
		}
		for name, r := range map[string]io.Reader{
			"byte by byte": iotest.OneByteReader(bytes.NewReader(stream)), "half": iotest.HalfReader(bytes.NewReader(stream)),
			"with its end": iotest.DataErrReader(bytes.NewReader(stream)), "whole": bytes.NewReader(stream),
		} {
			got, err := frames(t, e, r)
			if !errors.Is(err, io.EOF) || !bytes.Equal(raw(got), stream) {
				t.Fatalf("%v %s: %v, %d bytes of %d", e, name, err, len(raw(got)), len(stream))
			}
			events := 0
			for _, f := range got {
				if f.Err != nil {
					t.Errorf("%v %s: %v", e, name, f.Err)
				}
				if f.Type == watch.Added {
					events++
				}
			}
			if events != 5 {
				t.Errorf("%v %s: %d events", e, name, events)
			}
		}
	}
}

func TestAStreamThatBreaksOffEndsWithWhatCame(t *testing.T) {
	s := allTypes(t)
	reset := errors.New("connection reset")
	for _, e := range encodings {
		event := apiserverEvent(t, s, e, watch.Added, smallPod())
		object := len(bytes.TrimSuffix(event, []byte("\n"))) // without the newline of JSON
		if e == wire.Protobuf {
			object = len(event)
		}
		stream := append(bytes.Clone(event), event...)
		for n := range len(stream) {
			got, err := frames(t, e, io.MultiReader(bytes.NewReader(stream[:n]), iotest.ErrReader(reset)))
			if !errors.Is(err, reset) || !bytes.Equal(raw(got), stream[:n]) {
				t.Fatalf("%v, %d bytes: %v", e, n, err)
			}
			events, cut := 0, false
			for _, f := range got {
				if f.Type != "" {
					events++
				}
				cut = f.More && errors.Is(f.Err, wire.ErrTruncated)
			}
			between := n == 0 || n >= object && n <= len(event) || n >= len(event)+object
			if want := (n + len(event) - object) / len(event); events != want || cut == between {
				t.Fatalf("%v, %d bytes: %d events, expected %d; cut short: %v", e, n, events, want, cut)
			}
		}
	}
}

func TestAFrameBeyondTheLimitPassesInPieces(t *testing.T) {
	s := allTypes(t)
	for _, e := range encodings {
		small := wire.AppendBookmark(nil, e, podType, "1", false)
		large := apiserverEvent(t, s, e, watch.Added, pods(1)[0])
		stream := bytes.Join([][]byte{small, large, small, large, small}, nil)
		for _, r := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream)), iotest.HalfReader(bytes.NewReader(stream))} {
			got, err := framesUpTo(t, e, r, 1000)
			if !errors.Is(err, io.EOF) || !bytes.Equal(raw(got), stream) {
				t.Fatalf("%v: %v, %d bytes of %d", e, err, len(raw(got)), len(stream))
			}
			bookmarks, larges := 0, 0
			for _, f := range got {
				switch {
				case f.Type == watch.Bookmark:
					bookmarks++
				case errors.Is(f.Err, wire.ErrTooLarge) && !f.More:
					larges++
				case f.Err != nil && !errors.Is(f.Err, wire.ErrTooLarge):
					t.Errorf("%v: %v", e, f.Err)
				}
			}
			if bookmarks != 3 || larges != 2 {
				t.Errorf("%v: %d bookmarks, %d large frames", e, bookmarks, larges)
			}
		}
	}
}

func TestAFrameThatCannotBeReadPassesAndTheStreamGoesOn(t *testing.T) {
	for _, c := range []struct{ name, frame string }{
		{"no event", `{"a":1}`},
		{"a type that is unknown", `{"type":"RENAMED","object":{"kind":"Pod","apiVersion":"v1"}}`},
		{"no object", `{"type":"ADDED"}`},
		{"an object that is a number", `{"type":"ADDED","object":1}`},
		{"an object without a kind", `{"type":"ADDED","object":{}}`},
		{"a type twice", `{"type":"ADDED","type":"DELETED","object":{"kind":"Pod"}}`},
		{"brackets that do not match", `{"type":"ADDED","object":{"kind":[}]}`},
		{"an error that is no Status", `{"type":"ERROR","object":{"kind":"Pod"}}`},
		{"no protobuf", "\x00\x00\x00\x03abc"},
		{"an empty frame", "\x00\x00\x00\x00"},
		{"an object without its prefix", "\x00\x00\x00\x0b\x0a\x05ADDED\x12\x02\x0a\x00"},
	} {
		e := wire.JSON
		if c.frame[0] == 0 {
			e = wire.Protobuf
		}
		stream := append([]byte(c.frame), wire.AppendBookmark(nil, e, podType, "7", false)...)
		got, err := frames(t, e, bytes.NewReader(stream))
		if !errors.Is(err, io.EOF) || !bytes.Equal(raw(got), stream) || len(got) != 2 || string(got[0].Raw) != c.frame || got[0].More || got[0].Err == nil || got[0].Type != "" {
			t.Errorf("%s: %+v, %v", c.name, got, err)
			continue
		}
		if f := got[1]; f.Type != watch.Bookmark || f.Err != nil {
			t.Errorf("%s: after it %+v", c.name, f)
		}
	}
}

func TestWhereNoFrameBeginsAllPasses(t *testing.T) {
	stream := string(wire.AppendBookmark(nil, wire.JSON, podType, "7", false)) + `Internal error}{"type":"ADDED"}`
	got, err := frames(t, wire.JSON, strings.NewReader(stream))
	if !errors.Is(err, io.EOF) || string(raw(got)) != stream || len(got) != 2 || !got[1].More || !errors.Is(got[1].Err, wire.ErrMalformed) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestReadySaysWhenNextDoesNotRead(t *testing.T) {
	for _, e := range encodings {
		frame := wire.AppendBookmark(nil, e, podType, "7", false)
		stream := append(bytes.Repeat(frame, 3), frame[:10]...)
		r, _ := wire.NewFrameReader(bytes.NewReader(stream), e)
		if r.Ready() {
			t.Errorf("%v: ready before anything was read", e)
		}
		for _, want := range []bool{true, true, false} {
			if _, err := r.Next(); err != nil || r.Ready() != want {
				t.Errorf("%v: ready is not %v, %v", e, want, err)
			}
		}
	}
}

func TestBookmarks(t *testing.T) {
	s := allTypes(t)
	apiserver := pods(1)[0].(metav1.Object)
	apiserver.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true", "x": "y"})
	for _, e := range encodings {
		for stream, end := range map[string]bool{
			string(wire.AppendBookmark(nil, e, podType, "42", false)):                   false,
			string(wire.AppendBookmark(nil, e, podType, "42", true)):                    true,
			string(apiserverEvent(t, s, e, watch.Bookmark, apiserver.(runtime.Object))): true,
			string(apiserverEvent(t, s, e, watch.Modified, apiserver.(runtime.Object))): false,
		} {
			r, _ := wire.NewFrameReader(strings.NewReader(stream), e)
			f, err := r.Next()
			if err != nil || f.Err != nil || f.InitialEventsEnd != end || string(f.Meta.Kind) != "Pod" {
				t.Fatalf("%v: %+v, %v", e, f, err)
			}
			object, _, err := encoder(t, s, e, true).Decode(f.Object, nil, nil)
			if err != nil {
				t.Fatalf("%v: a client cannot read %q: %v", e, f.Object, err)
			}
			o, _ := meta.Accessor(object)
			if o.GetResourceVersion() != string(f.Meta.ResourceVersion) || f.Type == watch.Bookmark && (o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true") != end {
				t.Errorf("%v: a client reads %v", e, o)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	s := allTypes(t)
	status := apierrors.NewResourceExpired("too old resource version: 1 (2)").Status()
	status.APIVersion, status.Kind = "v1", "Status"
	for _, e := range encodings {
		want := apiserverEvent(t, s, e, watch.Error, &status)
		got := wire.AppendError(nil, e, apierrors.NewResourceExpired("too old resource version: 1 (2)").Status())
		if !bytes.Equal(got, want) {
			t.Errorf("%v:\n%q\n%q", e, got, want)
		}
		all, _ := frames(t, e, bytes.NewReader(want))
		if len(all) != 1 || all[0].Type != watch.Error || all[0].Code != 410 || all[0].Err != nil || len(all[0].Meta.Name) > 0 {
			t.Errorf("%v: %+v", e, all)
		}
	}
}
