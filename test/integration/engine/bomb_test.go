package engine

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/pulltest"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

// TestGzipBomb becomes a hundred times as large when it is unpacked. The disk is not
// filled; what there was of it goes; and it is not tried again as long as there is no
// more room.
func TestGzipBomb(t *testing.T) {
	cluster.NeedRoot(t)
	const minFree = 20
	bombs := map[string]struct {
		files int
		size  int64
		disk  string
		left  func(s syscall.Statfs_t) int // percent
	}{
		"of bytes": {30_000, 4 << 10, "size=96m", func(s syscall.Statfs_t) int { return int(s.Bavail * 100 / s.Blocks) }},
		"of files": {30_000, 0, "size=96m,nr_inodes=20000", func(s syscall.Statfs_t) int { return int(s.Ffree * 100 / s.Files) }},
	}
	for name, bomb := range bombs {
		layer, err := pulltest.Zeros(bomb.files, bomb.size)
		if err != nil {
			t.Fatal(err)
		}
		for version, d := range daemons {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				disk := smalldisk.MountWith(t, bomb.disk)
				r := newRig(t, version, pulltest.StartContainerd(t, cluster.ContainerdOptions{Version: d.version, Dir: disk, Snapshotter: "native"}))
				reference, _ := r.push("app", "1", layer)
				e := r.newEngine(func(o *engine.Options) { o.MinFree = minFree })
				left := func() int { return bomb.left(statfs(t, disk)) }
				before := left()

				r.refused(e, engineapi.NoSpace, engineapi.Request{Image: reference})
				r.eventually(func() error { return atLeast(left(), before-5) })
				sent := r.registry.Bytes()
				lowest := r.lowest(left)
				start := time.Now()
				for range 3 {
					r.refused(r.newEngine(func(o *engine.Options) { o.MinFree = minFree }), engineapi.NoSpace, engineapi.Request{Image: reference})
				}
				t.Logf("%d%% were free, and %d%% at least in three further attempts, which took %v", before, lowest(), time.Since(start))
				if err := atLeast(lowest(), before-5); err != nil {
					t.Errorf("it was unpacked again: %v", err)
				}
				if more := r.registry.Bytes() - sent; more > 100<<10 {
					t.Errorf("%d bytes were sent for what does not fit", more)
				}
				good, _ := r.push("good", "1", r.ballast(1, 1<<20)...)
				r.pull(good)
			})
		}
	}
}

func statfs(t *testing.T, folder string) (s syscall.Statfs_t) {
	t.Helper()
	if err := syscall.Statfs(folder, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func atLeast(percent, want int) error {
	if percent < want {
		return fmt.Errorf("%d%% are free, want %d%%", percent, want)
	}
	return nil
}

// lowest measures until the result is called for the first time.
func (r *rig) lowest(measure func() int) func() int {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan struct{})
	least := measure()
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			least = min(least, measure())
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	r.Cleanup(cancel)
	return func() int {
		cancel()
		<-done
		return least
	}
}
