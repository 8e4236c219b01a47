package engine

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

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
	each(t, func(r *rig) {
		layers := r.ballast(1, 1<<20, 10<<20)
		reference, _ := r.push("app", "1", layers...)
		r.registry.CutAfter(r.digest(layers[1]), 5<<20, images.Reset)
		r.registry.CutAfter(r.digest(layers[1]), 3<<20, images.Finish)
		r.pull(reference)
		r.atMost(1.05, layers...)
		r.unpacked(reference)
	})
}

// TestCutForEver is given up on: a registry that sends a byte a connection must not hold up all pulls.
func TestCutForEver(t *testing.T) {
	once(t, func(r *rig) {
		layers := r.ballast(7, 1<<20)
		reference, _ := r.push("app", "1", layers...)
		for range 40 {
			r.registry.CutAfter(r.digest(layers[0]), 1, images.Finish)
		}
		r.refused(r.engine, engineapi.Unreachable, engineapi.Request{Image: reference})
		if n := len(r.registry.Requests()); n > 20 {
			r.Errorf("it took %d requests", n)
		}
	})
}

// TestKilled resumes in another process, even if meanwhile containerd was killed or has collected its
// garbage.
func TestKilled(t *testing.T) {
	between := map[string]func(*rig){
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

// TestTheRestCannotBeHad fetches the whole layer again from a registry that knows no ranges. From others it keeps
// what came before: who answered may stand between here and the registry.
func TestTheRestCannotBeHad(t *testing.T) {
	const page = "<html><body>Please log in</body></html>"
	tests := map[string]struct {
		answer http.HandlerFunc // to a request for the rest; nil: the whole layer
		fails  bool
		times  float64
	}{
		"it ignores ranges":   {nil, false, 1.55},
		"it refuses ranges":   {images.Say(http.StatusRequestedRangeNotSatisfiable, ""), false, 1.55},
		"a proxy refuses":     {images.Say(http.StatusProxyAuthRequired, page), true, 1.05},
		"a page in its place": {images.Say(http.StatusOK, page, "Content-Type", "text/html"), true, 1.05},
		"another part":        {images.Say(http.StatusPartialContent, page, "Content-Range", "bytes 0-38/39"), true, 1.05},
		"a page behind a redirect": {func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "/login", http.StatusTemporaryRedirect)
		}, true, 1.05},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			once(t, func(r *rig) {
				layers := r.ballast(3, 4<<20)
				reference, _ := r.push("app", "1", layers...)
				r.registry.CutAfter(r.digest(layers[0]), 2<<20, images.Reset)
				r.registry.Answer("/login", images.Say(http.StatusOK, page, "Content-Type", "text/html"))
				r.registry.Answer("/blobs/", func(w http.ResponseWriter, req *http.Request) {
					if req.Header.Get("Range") == "" {
						r.registry.Respond(w, req)
						return
					}
					if tt.answer != nil {
						tt.answer(w, req)
						return
					}
					req.Header.Del("Range")
					r.registry.Respond(w, req)
				})
				if tt.fails {
					_, err := r.engine.Pull(r.Context(), engineapi.Request{Image: reference})
					if _, ok := errors.AsType[*engineapi.Error](err); !ok {
						r.Fatalf("got %v", err)
					}
					r.registry.Answer("/blobs/", nil)
				}
				r.pull(reference)
				r.atMost(tt.times, layers...)
				r.unpacked(reference)
			})
		})
	}
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

// pullByCRIMeanwhile starts a pull by CRI, like kubelet's.
func (r *rig) pullByCRIMeanwhile(ctx context.Context, reference string) <-chan error {
	r.Helper()
	r.must(r.registry.WriteHosts(r.containerd.HostsDir(), r.registry.Addr()))
	done := make(chan error, 1) // so that it can end when the test has failed
	go func() {
		_, err := r.cri.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: reference}})
		done <- err
	}()
	return done
}

// TestLayerThatCRIFetches is waited for, and does not come twice.
func TestLayerThatCRIFetches(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(1, 8<<20)
		theirs, _ := r.push("theirs", "1", layers...)
		ours, _ := r.push("ours", "1", append(layers, r.ballast(2, 1000)...)...)
		r.registry.SetRate(4 << 20)
		done := r.pullByCRIMeanwhile(r.Context(), theirs)
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		r.must(r.registry.AwaitBytes(ctx, r.digest(layers[0]), 1<<20))
		r.pull(ours)
		r.must(<-done)
		r.atMost(1.05, layers...)
	})
}

// TestLayerThatHangs is not waited for by CRI, which pulls another image that has it.
func TestLayerThatHangs(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(1, 1<<20)
		ours, _ := r.push("ours", "1", layers...)
		theirs, _ := r.push("theirs", "1", layers...)
		r.registry.CutAfter(r.digest(layers[0]), 1<<19, images.Hang)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		done := r.pullUntil(ctx, r.engine, ours, layers[0], 1<<19)
		if err := <-r.pullByCRIMeanwhile(r.Context(), theirs); err != nil {
			r.Errorf("CRI cannot pull another image meanwhile: %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			r.Errorf("the pull that hangs ended with %v", err)
		}
	})
}

// TestHungRegistry is given up on after a while without a byte, and what came before
// is kept.
func TestHungRegistry(t *testing.T) {
	once(t, func(r *rig) {
		layers := r.ballast(3, 2<<20)
		reference, _ := r.push("app", "1", layers...)
		r.registry.CutAfter(r.digest(layers[0]), 1<<20, images.Hang)
		e := r.newEngine(func(o *engine.Options) { o.Stall = 2 * time.Second })
		failure := r.refused(e, engineapi.Unreachable, engineapi.Request{Image: reference})
		r.says(failure, "sent nothing")
		r.pull(reference)
		r.atMost(1.05, layers...)
	})
}
