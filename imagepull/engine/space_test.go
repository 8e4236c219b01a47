package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/diskspace"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestToUnpack(t *testing.T) {
	a, b := digest.FromString("a"), digest.FromString("b")
	layers := []ocispec.Descriptor{{Digest: a, Size: 100}, {Digest: b, Size: 10}, {Digest: b, Size: 10}}
	if got := toUnpack(layers, nil); got.bytes != 120 || got.inodes != 0 {
		t.Errorf("got %+v", got)
	}
	if got := toUnpack(layers, map[digest.Digest]size{a: {bytes: 1}, b: {bytes: 1000, inodes: 5}}); got.bytes != 2100 || got.inodes != 10 {
		t.Errorf("got %+v for layers that are known to be large", got)
	}
}

// TestLayersThatMayFit are pulled: one that is not compressed takes what it has, and one of noise in gzip little less.
func TestLayersThatMayFit(t *testing.T) {
	const mb, fifth = 1_000_000, 20
	disk := diskspace.Space{Free: 195 * mb, Total: 200 * mb}
	for name, tt := range map[string]struct {
		size int64
		fits bool
	}{
		"a fifth of the disk": {40 << 20, true},
		"twice the room":      {160 * mb, false},
		"half of the disk, which is too much with its layer beside it": {100 * mb, false},
	} {
		t.Run(name, func(t *testing.T) {
			layer := ocispec.Descriptor{Digest: digest.FromString("a"), Size: tt.size}
			need := layer.Size + toUnpack([]ocispec.Descriptor{layer}, nil).bytes
			if err := diskspace.Fits("/images", disk, need, fifth); (err == nil) != tt.fits {
				t.Error(err)
			}
		})
	}
}

// TestManySmallLayers cannot fill a disk between the looks at it.
func TestManySmallLayers(t *testing.T) {
	for minFree, want := range map[int]error{0: nil, 100: errFull} {
		u := &unpacking{engine: &Engine{opts: Options{MinFree: minFree}}, visible: t.TempDir()}
		ctx, stop := u.watch(t.Context())
		if got := context.Cause(ctx); !errors.Is(got, want) {
			t.Errorf("with %d%% to stay free, a layer is begun with %v, want %v", minFree, got, want)
		}
		stop()
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
