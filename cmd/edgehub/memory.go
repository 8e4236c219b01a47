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
	// leastMemory is the lowest memory limit, in bytes. It is a soft limit: garbage, of which
	// large lists make much, is collected and returned before the hub takes more memory.
	leastMemory = 64 << 20
	// spareMemory is the part of the memory in use, as its divisor, that may be garbage if
	// leastMemory does not suffice. A watch takes some 70 KB, and a node has a thousand. With
	// a limit below the memory in use, collections would never pause. With an eighth, half of
	// which is gaps between objects after half an hour, the hub takes twice the CPU time that
	// it takes with a quarter; with a quarter, 5,000 pods take more than 80 MB.
	spareMemory = 6
	// memoryPeriod is the interval of measuring the memory in use.
	memoryPeriod = 5 * time.Second
)

// boundMemory makes the runtime collect garbage early, until stop is called or ctx ends. If
// GOMEMLIMIT is set, it does nothing.
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

// limitFor returns the limit for this number of bytes in use.
func limitFor(inUse uint64) int64 {
	return max(leastMemory, int64(inUse+inUse/spareMemory))
}

// memoryInUse returns the memory that counts towards the limit, without garbage and free memory: the
// heap that the last collection found live, stacks, and the runtime's own memory.
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
