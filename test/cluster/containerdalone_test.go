package cluster_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
)

// versions are all that nodes and tests can run.
var versions = map[string]cluster.ContainerdVersion{
	"installed": cluster.ContainerdInstalled,
	"1.7":       cluster.Containerd17,
	"2":         cluster.Containerd2,
}

// TestContainerdAlone pulls and unpacks with each version, and looks for what stays
// after it has been killed.
func TestContainerdAlone(t *testing.T) {
	cluster.NeedRoot(t)
	registry, err := images.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registry.Close() })
	for release, version := range versions {
		t.Run(release, func(t *testing.T) {
			before := takeInventory(t)
			c, err := cluster.StartContainerd(t.Context(), cluster.ContainerdOptions{Version: version, Log: t.Output()})
			if err != nil {
				t.Fatal(err)
			}
			pullAndRestart(t, c, registry)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			before.compare(t, takeInventory(t))
		})
	}
}

func pullAndRestart(t *testing.T, c *cluster.Containerd, registry *images.Registry) {
	if err := c.Trust(registry); err != nil {
		t.Fatal(err)
	}
	reference := pushBallast(t, registry, 3<<20)
	if out, err := ctr(t, c, "images", "pull", "--hosts-dir", c.HostsDir(), reference); err != nil {
		t.Fatalf("pull: %v\n%s", err, out)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := ctr(t, c, "images", "check"); err != nil || !strings.Contains(out, reference) || !strings.Contains(out, "true") {
		t.Errorf("after it was killed and started again, the image is not there: %v\n%s", err, out)
	}
	if err := c.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "ctr", "--address", c.Socket(), "version").CombinedOutput(); err == nil {
		t.Errorf("frozen, it answers: %s", out)
	}
	if err := c.Cont(); err != nil {
		t.Fatal(err)
	}
}

func pushBallast(t *testing.T, registry *images.Registry, size int64) string {
	t.Helper()
	var layers []v1.Layer
	for seed, make := range []func(uint64, int64) (v1.Layer, error){images.Ballast, images.PlainBallast} {
		layer, err := make(uint64(seed), size)
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, layer)
	}
	image, err := images.New(images.Platform("amd64"), layers...)
	if err != nil {
		t.Fatal(err)
	}
	if err := registry.Push(t.Context(), "ballast", "1", image); err != nil {
		t.Fatal(err)
	}
	return registry.Reference("ballast", "1")
}

// ctr is the client that comes with containerd. It knows no CRI, so that what it
// pulls is in a namespace of its own.
func ctr(t *testing.T, c *cluster.Containerd, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ctr", append([]string{"--address", c.Socket()}, args...)...).CombinedOutput()
	return string(out), err
}
