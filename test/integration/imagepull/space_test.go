package imagepull

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

// TestNoRoom is reported in numbers before anything is fetched, and mended by nothing but
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
			d.awaitCondition(d.not("InsufficientSpace"))
			d.awaitEvent("ImagePrepullFailed", "MB are free")

			r.must(os.Remove(filler))
			r.awaitReady(d.pod.Name) // nobody has asked again
			r.atMost(1.05, layer)
			r.awaitImage(reference)
			d.awaitCondition(d.ready())
		})
	}
}

// TestTheDefaultLeavesKubeletAlone asks both programs for their defaults. kubelet's image
// garbage collection begins where its hard eviction does, with 15 % free, and ends with
// what its lower threshold leaves free.
func TestTheDefaultLeavesKubeletAlone(t *testing.T) {
	t.Parallel()
	kubernetes, err := cluster.BuildKubernetes(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	free := defaultOf(t, "image-pull-min-free", env.hubBin, "--help")
	used := defaultOf(t, "image-gc-low-threshold", kubernetes, "kubelet", "--help")
	if free < 100-used {
		t.Errorf("%d %% stay free; kubelet removes images until %d %% are", free, 100-used)
	}
}

// defaultOf is a number from a program's help.
func defaultOf(t *testing.T, flag, program string, args ...string) int {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	found := regexp.MustCompile(`--` + flag + ` int.*\(default (\d+)\)`).FindSubmatch(help)
	if found == nil {
		t.Fatalf("no default of --%s in:\n%s", flag, help)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
