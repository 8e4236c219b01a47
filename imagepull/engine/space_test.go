package engine

import (
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
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
	if got := toUnpack([]ocispec.Descriptor{{Size: 100}, {Size: 10}}); got != 385 {
		t.Errorf("got %d", got)
	}
}

func TestAmount(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 94_123_456: "94 MB", 8_049_000_000: "8.0 GB"} {
		if got := amount(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
