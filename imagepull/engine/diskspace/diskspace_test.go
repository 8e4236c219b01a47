package diskspace

import (
	"strings"
	"testing"
)

func TestSpareInodes(t *testing.T) {
	if got := (Space{Inodes: 100, TotalInodes: 1000}).AvailableInodes(); got != 50 {
		t.Errorf("got %d", got)
	}
	if got := (Space{}).AvailableInodes(); got <= 0 {
		t.Errorf("a file system without a limit has %d", got)
	}
}

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
			err := Fits("/data", Space{Free: tt.free, Total: tt.total}, tt.need, tt.percent)
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
