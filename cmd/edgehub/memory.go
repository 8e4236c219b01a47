package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// leastMemory is what the hub is to get by with, in bytes. It is a soft limit: garbage,
	// of which large lists make much, is collected and given back before there is more.
	leastMemory = 64 << 20
	// spareMemory is the part of what is in use, one in so many, that may be garbage
	// where the least does not do. A watch takes some 70 KB, and a node has a thousand:
	// with a limit below what is in use, collections would follow one another without end.
	// With an eighth, half of which is gaps between objects after half an hour, it takes
	// twice the CPU that a quarter does; with a quarter, 5,000 pods take more than 80 MB.
	spareMemory = 6
	// memoryPeriod is the time between two looks at what is in use.
	memoryPeriod = 5 * time.Second
)

// boundMemory has the runtime collect garbage early, until stop is called or ctx ends.
// Where GOMEMLIMIT says how much there may be, nothing is done.
func boundMemory(ctx context.Context) (stop func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	debug.SetMemoryLimit(leastMemory)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(memoryPeriod)
		defer ticker.Stop()
		for limit := int64(leastMemory); ; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if next := limitFor(memoryInUse()); next != limit {
				limit = next
				debug.SetMemoryLimit(limit)
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

// limitFor is the limit while so many bytes are in use.
func limitFor(inUse uint64) int64 {
	return max(leastMemory, int64(inUse+inUse/spareMemory))
}

// memoryInUse is what the limit counts, without what is garbage or free: the heap that the
// last collection found to be live, stacks, and what the runtime needs for itself.
func memoryInUse() uint64 {
	names := []string{
		"/memory/classes/total:bytes",
		"/gc/heap/live:bytes",
		"/memory/classes/heap/objects:bytes",
		"/memory/classes/heap/unused:bytes",
		"/memory/classes/heap/free:bytes",
		"/memory/classes/heap/released:bytes",
	}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	return value(0) + value(1) - value(2) - value(3) - value(4) - value(5)
}
