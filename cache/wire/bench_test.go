package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	benchPods = 5000
	readSize  = 32 << 10 // what io.Copy and the proxy read at once
)

// BenchmarkList splits and writes a list of 5,000 pods.
func BenchmarkList(b *testing.B) {
	s := allTypes(b)
	list := newPods(benchPods)
	for _, e := range encodings {
		body := encode(b, encoder(b, s, e, true), list)
		b.Run(fmt.Sprintf("split/%v", e), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				items := 0
				sp, _ := wire.NewSplitter(e, func([]byte, *wire.Meta) error { items++; return nil })
				for rest := body; len(rest) > 0; rest = rest[min(readSize, len(rest)):] {
					_, _ = sp.Write(rest[:min(readSize, len(rest))])
				}
				if _, err := sp.Close(); err != nil || items != benchPods {
					b.Fatal(items, err)
				}
			}
		})
		items, _, m, err := split(e, body, readSize)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("write/%v", e), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				var sizes wire.ItemSizes
				for _, item := range items {
					sizes.Add(len(item))
				}
				w, _ := wire.NewListWriter(io.Discard, e, m, sizes)
				for _, item := range items {
					_ = w.WriteItem(item)
				}
				if err := w.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkInspect reads the metadata of one pod.
func BenchmarkInspect(b *testing.B) {
	s := allTypes(b)
	pod := pods(1)[0]
	for _, e := range encodings {
		body := encode(b, encoder(b, s, e, true), pod)
		b.Run(e.String(), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.Inspect(e, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFrames reads a watch stream of events about pods.
func BenchmarkFrames(b *testing.B) {
	s := allTypes(b)
	for _, e := range encodings {
		frame := apiserverEvent(b, s, e, watch.Modified, pods(1)[0])
		stream := bytes.Repeat(frame, 1000)
		b.Run(e.String(), func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			var r *wire.FrameReader
			for b.Loop() {
				if r == nil {
					r, _ = wire.NewFrameReader(bytes.NewReader(stream), e)
				}
				f, err := r.Next()
				if errors.Is(err, io.EOF) {
					r = nil
				} else if err != nil || f.Err != nil {
					b.Fatal(err, f.Err)
				}
			}
		})
	}
}
