package imagepull

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/smalldisk"
)

// TestNoRoom is told in numbers before anything is fetched, and mended by nothing but
// more room.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	for version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			disk := smalldisk.Mount(t, 64)
			r := newRig(t, version, cluster.ContainerdOptions{Dir: disk, Snapshotter: "native"})
			layer := r.layer(1, 5_000_000)
			reference, _ := r.push("app", "2", layer)
			filler := filepath.Join(disk, "filler")
			if err := os.WriteFile(filler, make([]byte, 55_000_000), 0o644); err != nil {
				t.Fatal(err)
			}
			r.hub.Start()
			d := r.upgradable("web", reference)
			r.askOnceMarked(d.pod.Name)
			failed := r.awaitFailure(d.pod.Name, "InsufficientSpace")
			// 4.5 times the layer; 67 MB without the filler and what containerd has.
			for _, words := range []string{"about 23 MB", disk, " MB are free"} {
				if !strings.Contains(failed.LastError, words) {
					t.Errorf("%q does not say %s", failed.LastError, words)
				}
			}
			digest, err := layer.Digest()
			r.must(err)
			if n := r.registry.BytesOf(digest); n > 0 {
				t.Errorf("%d bytes were fetched that have no room", n)
			}
			d.awaitTold(d.not("InsufficientSpace"))
			d.awaitEvent("ImagePrepullFailed", "MB are free")

			r.must(os.Remove(filler))
			r.awaitReady(d.pod.Name) // nobody has asked again
			r.atMost(1.05, layer)
			r.awaitImage(reference)
			d.awaitTold(d.ready())
		})
	}
}
