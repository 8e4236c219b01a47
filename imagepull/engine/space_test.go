package engine

import (
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestFits(t *testing.T) {
	const gb = 1_000_000_000
	tests := map[string]struct {
		free, total, need int64
		percent           int
		says              string // "": it fits
	}{
		"plenty of room":                 {free: 5 * gb, total: 10 * gb, need: gb},
		"just enough":                    {free: gb, total: 10 * gb, need: gb},
		"a byte too little":              {free: gb, total: 10 * gb, need: gb + 1, says: "1.0 GB are free;"},
		"just what has to stay is left":  {free: 3 * gb, total: 10 * gb, need: 2 * gb, percent: 10},
		"less than has to stay is left":  {free: 3 * gb, total: 10 * gb, need: 2*gb + 1, percent: 10, says: "10% of 10 GB are to stay free"},
		"less is free than has to stay":  {free: gb / 2, total: 10 * gb, need: 1, percent: 10, says: "500 MB are free"},
		"nothing is needed, and nothing": {free: 0, total: 10 * gb, need: 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := fits("/data", room{free: tt.free, total: tt.total}, tt.need, tt.percent)
			if tt.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "/data") {
				t.Errorf("got %v, want it to say %q", err, tt.says)
			}
		})
	}
}

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

func TestSpareInodes(t *testing.T) {
	if got := (room{inodes: 100, allInodes: 1000}).spareInodes(); got != 50 {
		t.Errorf("got %d", got)
	}
	if got := (room{}).spareInodes(); got <= 0 {
		t.Errorf("a file system without a limit has %d", got)
	}
}

func TestAmount(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 94_123_456: "94 MB", 8_049_000_000: "8.0 GB"} {
		if got := engineapi.Amount(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
