package main

import (
	"bytes"
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

func TestTheMemoryLimitLeavesRoomForGarbage(t *testing.T) {
	tests := map[string]struct{ inUse, gaps, want int64 }{
		"little is in use: the least":                        {inUse: 20 << 20, want: 64 << 20},
		"there is room for a sixth within the least":         {inUse: 54 << 20, want: 64 << 20},
		"more than the least is in use, as with 800 watches": {inUse: 84 << 20, want: 98 << 20},
		"some of it is gaps, as after half an hour":          {inUse: 84 << 20, gaps: 5 << 20, want: 98 << 20},
		"much of it is gaps, as when the watches have ended": {inUse: 80 << 20, gaps: 20 << 20, want: 108 << 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := limitFor(uint64(tt.inUse), uint64(tt.gaps)); got != tt.want {
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
	return measureMemory().inUse
}

func TestMemoryIsReturnedByAnIdleHubAfterMuchWork(t *testing.T) {
	const mb = 1 << 20
	tests := map[string]struct {
		returned, last, now uint64 // allocated until then
		want                bool
	}{
		"idle after much work":           {returned: 100 * mb, last: 139 * mb, now: 140 * mb, want: true},
		"busy":                           {returned: 100 * mb, last: 120 * mb, now: 140 * mb},
		"idle after little work":         {returned: 100 * mb, last: 110 * mb, now: 111 * mb},
		"idle since memory was returned": {returned: 100 * mb, last: 100 * mb, now: 100 * mb},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (memory{allocated: tt.now}).idleAfterMuch(memory{allocated: tt.last}, memory{allocated: tt.returned}); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestGarbageIsReturnedToTheMachine(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	stop := boundMemory(t.Context())
	defer stop()
	const much = 48 << 20
	garbage := bytes.Repeat([]byte{1}, much)
	held := heldMemory()
	runtime.KeepAlive(garbage)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(memoryPeriod / 10) {
		if now := heldMemory(); now+much/2 < held {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held a minute after %d of them became garbage; before, it was %d", now, much, held)
		}
	}
}

// Without a tick, only a collection can have it follow.
func TestTheMemoryLimitFollowsCollections(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	debug.SetMemoryLimit(leastMemory)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { followMemory(ctx, measureMemory(), nil, collections(ctx)) })
	var kept [][]byte
	for range 4 {
		kept = append(kept, make([]byte, leastMemory))
		want := limitFor(inUseAfterCollection(), 0) - 4<<20
		for deadline := time.Now().Add(time.Minute); debug.SetMemoryLimit(-1) < want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("a minute after a collection that left %d bytes more, the limit is %d; want %d", len(kept)*leastMemory, debug.SetMemoryLimit(-1), want)
			}
		}
	}
	runtime.KeepAlive(kept)
}

func heldMemory() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapSys - stats.HeapReleased
}
