package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// leastMemory is the lowest memory limit, in bytes. It is a soft limit: garbage, of which
	// large lists make much, is collected and returned before the hub takes more memory.
	leastMemory = 64 << 20
	// spareMemory is the part of the memory in use, as its divisor, that may be garbage if
	// leastMemory does not suffice. A watch takes some 70 KB, and a node has a thousand. With
	// a limit below the memory in use, collections would never pause. With an eighth, half of
	// which is gaps between objects after half an hour, the hub takes twice the CPU time that
	// it takes with a quarter; with a quarter, 5,000 pods take more than 80 MB.
	spareMemory = 6
	// leastSpareMemory is the same, beside gaps: where most of the spare memory is gaps, as after a
	// thousand watches have ended, there would be room for hardly any garbage.
	leastSpareMemory = 10
	// memoryPeriod is the interval of measuring the memory in use, if nothing is collected meanwhile.
	memoryPeriod = time.Second
	// idleAllocation is how many bytes the hub allocates within memoryPeriod, at most, while
	// it is idle: with a kubelet's requests and scrapes of its metrics, without large lists.
	idleAllocation = 16 << 20
	// muchAllocation is how many bytes an idle hub must have allocated since it last returned
	// memory to the machine, to do so again: that takes some milliseconds of CPU time.
	muchAllocation = 32 << 20
)

// boundMemory makes the runtime collect garbage early, and return memory to the machine once
// the hub is idle: the garbage of large lists would otherwise remain for minutes. It does so
// until stop is called or ctx ends. If GOMEMLIMIT is set, it does nothing.
func boundMemory(ctx context.Context) (stop func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	debug.SetMemoryLimit(leastMemory)
	ctx, cancel := context.WithCancel(ctx)
	ticker := time.NewTicker(memoryPeriod)
	var running sync.WaitGroup
	began := measureMemory()
	running.Go(func() { followMemory(ctx, began, ticker.C, collections(ctx)) })
	return func() { cancel(); running.Wait(); ticker.Stop() }
}

// followMemory sets the memory limit for the memory in use after each collection and at each tick,
// until ctx ends. last is the memory as it began. While a thousand watches begin, the memory in use
// outgrows the limit in much less than memoryPeriod, and one collection would follow on the other
// until the next tick.
func followMemory(ctx context.Context, last memory, ticks <-chan time.Time, collected <-chan struct{}) {
	returned := last
	for limit := int64(leastMemory); ; {
		var now memory
		select {
		case <-ctx.Done():
			return
		case <-collected:
			now = measureMemory()
		case <-ticks:
			now = measureMemory()
			if now.idleAfterMuch(last, returned) {
				debug.FreeOSMemory()
				now = measureMemory()
				returned = now
			}
			last = now
		}
		if next := limitFor(now.inUse, last.gaps); next != limit {
			limit = next
			debug.SetMemoryLimit(limit)
		}
	}
}

// collections returns a channel that has a value after each garbage collection, until ctx ends.
func collections(ctx context.Context) <-chan struct{} {
	collected := make(chan struct{}, 1)
	var next func(struct{})
	next = func(struct{}) {
		if ctx.Err() != nil {
			return
		}
		select {
		case collected <- struct{}{}:
		default:
		}
		unreachable := new([64]byte) // too large for an allocation that it shares with what is reachable
		runtime.AddCleanup(unreachable, next, struct{}{})
	}
	next(struct{}{})
	return collected
}

// limitFor returns the limit for these numbers of bytes in use, and of gaps.
func limitFor(inUse, gaps uint64) int64 {
	return max(leastMemory, int64(inUse+max(inUse/spareMemory, gaps+inUse/leastSpareMemory)))
}

// memory describes the memory of the process, in bytes.
type memory struct {
	// inUse counts towards the limit, without garbage and free memory: the heap that the last
	// collection found live, stacks, and the runtime's own memory.
	inUse uint64
	// gaps are between objects. Those that were garbage until a collection are gaps only once the
	// runtime has swept them, within some milliseconds.
	gaps      uint64
	allocated uint64 // on the heap since the process began
}

// idleAfterMuch reports whether the hub has been idle since last, one memoryPeriod ago, and
// has allocated much since memory was returned to the machine. How much of that is garbage is
// only known after a collection.
func (m memory) idleAfterMuch(last, returned memory) bool {
	return m.allocated-last.allocated <= idleAllocation && m.allocated-returned.allocated >= muchAllocation
}

func measureMemory() memory {
	names := []string{
		"/memory/classes/total:bytes",
		"/memory/classes/heap/objects:bytes",
		"/memory/classes/heap/unused:bytes",
		"/memory/classes/heap/free:bytes",
		"/memory/classes/heap/released:bytes",
		"/gc/heap/live:bytes",
		"/gc/heap/allocs:bytes",
	}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	return memory{inUse: value(0) - value(1) - value(2) - value(3) - value(4) + value(5), gaps: value(2), allocated: value(6)}
}
