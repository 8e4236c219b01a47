package engine

import (
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestToUnpack(t *testing.T) {
	a, b := digest.FromString("a"), digest.FromString("b")
	layers := []ocispec.Descriptor{{Digest: a, Size: 100}, {Digest: b, Size: 10}, {Digest: b, Size: 10}}
	if got := toUnpack(layers, nil); got.bytes != 420 || got.inodes != 0 {
		t.Errorf("got %+v", got)
	}
	if got := toUnpack(layers, map[digest.Digest]size{a: {bytes: 1}, b: {bytes: 1000, inodes: 5}}); got.bytes != 2350 || got.inodes != 10 {
		t.Errorf("got %+v for layers that are known to be large", got)
	}
}

func TestSizeAsLabel(t *testing.T) {
	want := size{bytes: 1 << 40, inodes: 7}
	if got := readSize(want.String()); got != want {
		t.Errorf("%s is read as %+v", want, got)
	}
	for _, text := range []string{"", "x", "-5 -5", "1"} {
		if got := readSize(text); got != (size{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestAmount(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 94_123_456: "94 MB", 8_049_000_000: "8.0 GB"} {
		if got := engineapi.Amount(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
