package engine

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster/images"
)

// atMost compares the bytes of layers that the registry has sent with the layers' size. When a
// process is killed, the bytes in the kernel's buffers are lost, which the registry keeps to
// 32 KiB, and those that the process has just read.
func (r *rig) atMost(times float64, layers ...v1.Layer) {
	r.Helper()
	served, size := r.blobBytes(layers...), r.size(layers...)
	r.Logf("the registry has sent %d bytes of %d: %.3f", served, size, float64(served)/float64(size))
	if float64(served) > times*float64(size) {
		r.Errorf("the registry has sent %d bytes of layers of %d", served, size)
	}
}

// TestCut resumes a layer within the same pull after the connection broke.
func TestCut(t *testing.T) {
	for name, way := range map[string]images.Cut{"reset": images.Reset, "closed": images.Finish} {
		t.Run(name, func(t *testing.T) {
			each(t, func(r *rig) {
				layers := r.ballast(1, 1<<20, 10<<20)
				reference, _ := r.push("app", "1", layers...)
				for _, at := range []int64{5 << 20, 8 << 20} {
					r.registry.CutAfter(r.digest(layers[1]), at, way)
				}
				r.pull(reference)
				r.atMost(1.05, layers...)
				r.unpacked(reference)
			})
		})
	}
}

// TestKilled resumes in another process, even if meanwhile containerd was killed or has collected its
// garbage.
func TestKilled(t *testing.T) {
	between := map[string]func(*rig){
		"at once": func(*rig) {},
		"after containerd was killed": func(r *rig) {
			r.must(r.containerd.Kill())
			r.must(r.containerd.Start(r.Context()))
		},
		"after garbage was collected": func(r *rig) {
			other, _ := r.push("other", "1", r.ballast(9, 1000)...)
			got := r.pull(other)
			r.must(r.engine.Release(r.Context(), got.Name))
			r.remove(got.ID) // removes synchronously, and what else nobody needs
		},
	}
	for name, happens := range between {
		t.Run(name, func(t *testing.T) {
			eachAlone(t, func(r *rig) {
				layers := r.ballast(2, 1<<20, 16<<20)
				reference, _ := r.push("app", "1", layers...)
				r.registry.SetRate(20 << 20)
				r.cutShort(reference, layers[1], 8<<20)
				r.registry.SetRate(0)
				happens(r)
				r.pullOnceBack(r.newEngine(nil), reference)
				r.atMost(1.05, layers...)
				r.unpacked(reference)
			})
		})
	}
}

// TestRangeIgnored fetches the whole layer again from a registry that ignores Range.
func TestRangeIgnored(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(3, 4<<20)
		reference, _ := r.push("app", "1", layers...)
		r.registry.IgnoreRanges(true)
		r.registry.CutAfter(r.digest(layers[0]), 2<<20, images.Reset)
		r.pull(reference)
		r.atMost(1.55, layers...)
		r.unpacked(reference)
	})
}

// TestRestRefused fetches the whole layer again from a registry that refuses Range.
func TestRestRefused(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(6, 4<<20)
		reference, _ := r.push("app", "1", layers...)
		r.registry.Fail(func(q *http.Request) (int, http.Header, bool) {
			return http.StatusRequestedRangeNotSatisfiable, nil, q.Header.Get("Range") != ""
		})
		r.registry.CutAfter(r.digest(layers[0]), 2<<20, images.Reset)
		r.pull(reference)
		r.unpacked(reference)
	})
}

// TestDamagedRest fetches a layer again of which a loss of power has left only zeros.
func TestDamagedRest(t *testing.T) {
	eachAlone(t, func(r *rig) {
		layers := r.ballast(4, 4<<20)
		reference, _ := r.push("app", "1", layers...)
		r.registry.SetRate(10 << 20)
		r.cutShort(reference, layers[0], 2<<20)
		r.registry.SetRate(0)
		r.must(r.containerd.Kill())
		r.zeroIngests()
		r.must(r.containerd.Start(r.Context()))
		r.pullOnceBack(r.engine, reference)
		r.atMost(2.05, layers...)
		r.unpacked(reference)
	})
}

// zeroIngests overwrites incomplete layers in containerd with zeros.
func (r *rig) zeroIngests() {
	r.Helper()
	found := 0
	root := filepath.Join(r.containerd.Dir(), "root", "io.containerd.content.v1.content", "ingest")
	r.must(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "data" {
			return err
		}
		found++
		info, err := entry.Info()
		return errors.Join(err, os.WriteFile(path, make([]byte, info.Size()), 0o644))
	}))
	if found == 0 {
		r.Fatal("nothing was left of the layer")
	}
}

// TestBandwidth checks that the limit is for all pulls together.
func TestBandwidth(t *testing.T) {
	each(t, func(r *rig) {
		const size, limit = 3 << 20, 2 << 20
		e := r.newEngine(func(o *engine.Options) { o.Bandwidth = limit })
		layers := r.ballast(5, size/2, size/2)
		start := time.Now()
		done := make(chan error, len(layers)) // has room for all errors, for when the test has failed
		for i, name := range []string{"one", "two"} {
			reference, _ := r.push(name, "1", layers[i])
			go func() {
				_, err := e.Pull(r.Context(), engineapi.Request{Image: reference})
				done <- err
			}()
		}
		for range layers {
			r.must(<-done)
		}
		took := time.Since(start)
		// The first quarter of a second's bytes may come at once.
		if least := time.Duration(float64(time.Second) * (float64(size)/limit - 0.3)); took < least {
			r.Errorf("%d bytes came in %v, want %v at least", size, took, least)
		}
	})
}
