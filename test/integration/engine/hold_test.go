package engine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// TestRemoved is what kubelet's garbage collection does to an image where containerd
// does not know that it is pinned. All of it comes back, and no byte over the network.
func TestRemoved(t *testing.T) {
	for name, first := range map[string]func(*rig, string){
		"pulled ahead": func(*rig, string) {},
		"there before": func(r *rig, reference string) { r.pullByCRI(reference) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(r *rig) {
				reference, _ := r.push("app", "1", r.ballast(1, 2<<20, 1<<20)...)
				first(r, reference)
				got := r.pull(reference)
				before := r.shows(reference, "there", func(i *cri.Image) bool { return i != nil && len(i.RepoTags)+len(i.RepoDigests) == 2 })
				r.remove(got.ID)
				r.shows(reference, "removed", func(i *cri.Image) bool { return i == nil })
				r.must(r.registry.Down())

				r.must(r.newEngine(nil).Keep(r.Context(), got))
				r.shows(reference, "as it was", func(i *cri.Image) bool {
					return i != nil && i.Id == before.Id && slices.Equal(i.RepoTags, before.RepoTags) && slices.Equal(i.RepoDigests, before.RepoDigests)
				})
				r.showsPinned(reference, true)
				r.must(r.registry.Up())
				r.registry.Forget()
				r.unpacked(reference)
			})
		})
	}
}

// TestFound retains an image that the engine has not pulled, and puts it back.
func TestFound(t *testing.T) {
	each(t, func(r *rig) {
		reference, _ := r.push("app", "1", r.ballast(8, 100<<10)...)
		find := func() (engineapi.Image, error) { return r.newEngine(nil).Find(r.Context(), reference) }
		_, err := find()
		r.reason(err, engineapi.Gone)
		r.pullByCRI(reference)
		found, err := find()
		r.must(err)
		r.must(r.engine.Keep(r.Context(), found))
		r.showsPinned(reference, true)
		r.held(found.Name, true)
		r.remove(found.ID)
		_, err = find()
		r.reason(err, engineapi.Gone)
		r.must(r.engine.Keep(r.Context(), found))
		r.unpacked(reference)
		r.must(r.engine.Release(r.Context(), found.Name))
		r.showsPinned(reference, false)
	})
}

// TestDisk is the one that containerd is on, with the folder in which it has the layers.
func TestDisk(t *testing.T) {
	each(t, func(r *rig) {
		reference, _ := r.push("app", "1", r.ballast(1, 10<<10)...)
		r.pull(reference)
		folder, space, err := r.engine.Disk(r.Context())
		r.must(err)
		if info, err := os.Stat(filepath.Join(folder, "blobs")); err != nil || !info.IsDir() || space.Total <= 0 || space.Free > space.Total {
			r.Errorf("%s has %d of %d bytes free: %v", folder, space.Free, space.Total, err)
		}
		for free, want := range map[int]bool{0: true, 99: false} {
			got, err := r.newEngine(func(o *engine.Options) { o.MinFree = free }).HasRoom(r.Context())
			r.must(err)
			if got != want {
				r.Errorf("with %d%% to stay free, there is room: %v", free, got)
			}
		}
	})
}

// TestReleased leaves the image as kubelet's own pull would have, and takes away no
// pin of somebody else. Once somebody removes it, nothing is left to keep.
func TestReleased(t *testing.T) {
	each(t, func(r *rig) {
		reference, _ := r.push("app", "1", r.ballast(3, 100<<10)...)
		got := r.pull(reference)
		r.showsPinned(reference, true)
		r.held(got.Name, true)
		for range 2 {
			r.must(r.newEngine(nil).Release(r.Context(), got.Name))
			r.showsPinned(reference, false)
			r.held(got.Name, false)
		}
		r.must(r.engine.Release(r.Context(), "docker.io/library/never:1"))
		r.unpacked(reference)
		r.remove(got.ID)
		r.reason(r.engine.Keep(r.Context(), got), engineapi.Gone)
		r.must(r.engine.Keep(r.Context(), r.pull(reference)))
	})
}

// TestAllReleased leaves nothing that keeps an image from being removed, whether the engine does it or a person.
func TestAllReleased(t *testing.T) {
	eachAlone(t, func(r *rig) {
		ways := map[string]func(names ...string){
			"by the engine": func(names ...string) {
				released, err := r.newEngine(nil).ReleaseAll(r.Context())
				r.must(err)
				if !slices.Equal(released, names) {
					r.Errorf("it has released %v, want %v", released, names)
				}
			},
			"by the command": func(...string) {
				out, err := exec.CommandContext(r.Context(), "sh", "-c", engine.ReleaseCommand(r.containerd.Socket())).CombinedOutput()
				if err != nil {
					r.Fatalf("%v: %s", err, out)
				}
			},
		}
		seed := uint64(9)
		for way, release := range ways {
			seed++ // what the way before has left of a layer would count as progress
			layers := r.ballast(seed, 100<<10, 2<<20)
			whole, _ := r.push("app", "1", layers[0])
			begun, _ := r.push("begun", "1", layers[1])
			got := r.pull(whole)
			r.registry.SetRate(4 << 20)
			r.cutShort(begun, layers[1], 1<<20)
			r.registry.SetRate(0)
			release(whole, begun)
			release() // there is nothing to release any more
			r.showsPinned(whole, false)
			r.remove(got.ID)
			r.eventually(func() error { // containerd collects garbage a moment later
				if left := r.ctr("content", "list", "--quiet"); strings.Contains(left, r.digest(layers[0]).String()) {
					return fmt.Errorf("released %s and removed, the image has left:\n%s", way, left)
				}
				return nil
			})
			if left := r.ctr("leases", "list", "--quiet") + r.ctr("content", "active"); strings.Contains(left, "edgehub") {
				r.Errorf("released %s, there is left:\n%s", way, left)
			}
		}
	})
}

// ctr returns what containerd's own client prints.
func (r *rig) ctr(args ...string) string {
	r.Helper()
	out, err := exec.CommandContext(r.Context(), "ctr", append([]string{"--address", r.containerd.Socket(), "--namespace", "k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		r.Fatalf("ctr %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (r *rig) held(name string, want bool) {
	r.Helper()
	held, err := r.engine.Retained(r.Context())
	r.must(err)
	if slices.Contains(held, name) != want {
		r.Errorf("held are %v; want %s among them: %v", held, name, want)
	}
}

// TestHeldTwice is one image under two tags. It is pinned until both are let go of.
func TestHeldTwice(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(4, 100<<10)
		one, _ := r.push("app", "1", layers...)
		two, _ := r.push("app", "2", layers...)
		first, second := r.pull(one), r.pull(two)
		if first.ID != second.ID {
			r.Fatalf("%+v and %+v are not one image", first, second)
		}
		r.must(r.engine.Release(r.Context(), first.Name))
		r.held(first.Name, false)
		r.held(second.Name, true)
		r.showsPinned(two, true)
		r.must(r.engine.Release(r.Context(), second.Name))
		r.showsPinned(two, false)
	})
}

// TestLeftBehind is what a pull has fetched before it was cut off. It is let go of
// like an image that was complete.
func TestLeftBehind(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(5, 2<<20)
		reference, _ := r.push("app", "1", layers...)
		r.registry.SetRate(4 << 20)
		r.cutShort(reference, layers[0], 1<<20)
		r.held(reference, true)
		r.must(r.engine.Release(r.Context(), reference))
		r.held(reference, false)
	})
}

// TestTagMovedByOthers is left as it is.
func TestTagMovedByOthers(t *testing.T) {
	each(t, func(r *rig) {
		layers := r.ballast(6, 1000, 2000)
		reference, _ := r.push("app", "latest", layers[0])
		got := r.pull(reference)
		_, newer := r.push("app", "latest", layers[1])
		r.pullByCRI(reference)
		r.must(r.engine.Keep(r.Context(), got))
		_, id := hashes(r, newer)
		if seen := r.seen(reference); seen.GetId() != id {
			r.Errorf("the tag is %v, want the image %s", seen, id)
		}
		r.showsPinned(got.ID, true)
		r.must(r.engine.Release(r.Context(), got.Name))
		r.showsPinned(got.ID, false)
	})
}

// TestRemovals are reported as they happen, and again after containerd was away.
func TestRemovals(t *testing.T) {
	eachAlone(t, func(r *rig) {
		reference, _ := r.push("app", "1", r.ballast(7, 1000)...)
		got := r.pull(reference)
		names := make(chan string, 100) // more than there can be
		ctx, cancel := context.WithCancel(r.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.engine.Removals(ctx, func(name string) { names <- name })
		}()
		r.eventually(func() error { // it takes a moment until it listens
			r.must(r.engine.Keep(r.Context(), got))
			r.remove(got.ID)
			return r.heard(names, got.Name, 200*time.Millisecond)
		})
		r.must(r.containerd.Kill())
		r.must(r.containerd.Start(r.Context()))
		r.must(r.heard(names, got.Name, patience))
		cancel()
		<-ended
	})
}

func (r *rig) heard(names <-chan string, want string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	for {
		select {
		case name := <-names:
			if name == want {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
