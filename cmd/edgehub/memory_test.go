package main

import (
	"runtime"
	"testing"
)

func TestTheMemoryLimitLeavesRoomForGarbage(t *testing.T) {
	tests := map[string]struct{ inUse, want int64 }{
		"little is in use: the least":                        {inUse: 20 << 20, want: 64 << 20},
		"there is room for a sixth within the least":         {inUse: 54 << 20, want: 64 << 20},
		"more than the least is in use, as with 800 watches": {inUse: 84 << 20, want: 98 << 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := limitFor(uint64(tt.inUse)); got != tt.want {
				t.Errorf("%d bytes are in use: the limit is %d; want %d", tt.inUse, got, tt.want)
			}
		})
	}
}

func TestMemoryInUseExcludesGarbage(t *testing.T) {
	const much = 32 << 20
	before := inUseAfterCollection()
	kept := make([]byte, much)
	during := inUseAfterCollection()
	runtime.KeepAlive(kept)
	after := inUseAfterCollection()
	const margin = 4 << 20
	if during < before+much-margin || during > before+much+margin {
		t.Errorf("%d bytes more: %d are in use, where there were %d", much, during, before)
	}
	if after > before+margin {
		t.Errorf("they are garbage: %d are in use, where there were %d", after, before)
	}
}

func inUseAfterCollection() uint64 {
	runtime.GC()
	return memoryInUse()
}
