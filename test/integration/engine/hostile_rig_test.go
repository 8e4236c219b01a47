package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster/images/hostile"
)

const (
	// littleSent is what a registry that means harm may make the node fetch which is no
	// layer: a manifest and a configuration of the largest size, and something beside.
	littleSent = 12 << 20
	// littleMemory is what that may take in all pulls that the tests make at once.
	littleMemory = 150 << 20
	// soon is after how long a pull has to have given up that waits for answers with
	// impatient's patience.
	soon = 20 * time.Second
)

// hostile starts a registry that means harm, which the rig's engines and CRI can reach.
func (r *rig) hostile() *hostile.Registry {
	r.Helper()
	h := hostile.Serve()
	r.Cleanup(h.Close)
	r.must(h.WriteHosts(r.hosts))
	r.must(h.WriteHosts(r.containerd.HostsDir()))
	return h
}

// impatient is an engine that waits seconds where others wait minutes.
func (r *rig) impatient() *engine.Engine {
	r.Helper()
	return r.newEngine(func(o *engine.Options) { o.Stall = 2 * time.Second })
}

// layer puts a layer into a registry that means harm.
func (r *rig) layer(h *hostile.Registry, layer v1.Layer) (blob hostile.Descriptor, content []byte, diffID string) {
	r.Helper()
	from, err := layer.Compressed()
	r.must(err)
	content, err = io.ReadAll(from)
	r.must(err)
	diff, err := layer.DiffID()
	r.must(err)
	return h.Put(hostile.Layer, content), content, diff.String()
}

// image puts an image of one layer, and tags it.
func (r *rig) image(h *hostile.Registry, layer v1.Layer) (reference string, blob hostile.Descriptor, content []byte) {
	r.Helper()
	blob, content, diffID := r.layer(h, layer)
	h.Tag("1", h.Image([]hostile.Descriptor{blob}, []string{diffID}))
	return h.Reference("app", "1"), blob, content
}

// givesUp pulls, and fails the test unless that fails for a reason of the engine, in
// time, without much having been fetched or kept in memory.
func (r *rig) givesUp(e *engine.Engine, h *hostile.Registry, reference string) engineapi.Error {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), soon)
	defer cancel()
	peak := peakMemory(ctx, r.T)
	before := h.Sent()
	_, err := e.Pull(ctx, engineapi.Request{Image: reference})
	if ctx.Err() != nil {
		r.Fatalf("the pull has not given up after %v", soon)
	}
	failure, ok := errors.AsType[*engineapi.Error](err)
	if !ok {
		r.Fatalf("the pull ended with %v", err)
	}
	if sent := h.Sent() - before; sent > littleSent {
		r.Errorf("the registry could send %d bytes", sent)
	}
	most := peak()
	r.Logf("%s after %d bytes, with %d of memory: %v", failure.Reason, h.Sent()-before, most, failure)
	if most > littleMemory {
		r.Errorf("%d bytes of memory were in use at once", most)
	}
	return *failure
}

// peakMemory measures until the result is called, which returns the most.
func peakMemory(ctx context.Context, t *testing.T) func() uint64 {
	t.Helper()
	runtime.GC() // what other tests have left
	ctx, cancel := context.WithCancel(ctx)
	most := make(chan uint64, 1) // so that it can end when the test has failed
	go func() {
		peak := uint64(0)
		defer func() { most <- peak }()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
			select {
			case <-ctx.Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(cancel)
	return func() uint64 {
		cancel()
		return <-most
	}
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// repeat is a JSON list of n times the same.
func repeat(element string, n int) []byte {
	return append([]byte("["+element), append(bytes.Repeat([]byte(","+element), n-1), ']')...)
}
