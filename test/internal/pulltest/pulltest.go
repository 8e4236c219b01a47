// Package pulltest starts what tests of image pulls need, until the test ends.
package pulltest

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/internal/freeport"
)

// StartContainerd starts a containerd that no other test uses.
func StartContainerd(t *testing.T, o cluster.ContainerdOptions) *cluster.Containerd {
	t.Helper()
	c, err := cluster.StartContainerd(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// ServeRegistry starts a registry at a free port.
func ServeRegistry(t *testing.T) *images.Registry {
	t.Helper()
	registry, err := images.Serve(freeport.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registry.Close() })
	return registry
}

// Push pushes an image of layers, and returns its reference.
func Push(t *testing.T, registry *images.Registry, repository, tag string, layers ...v1.Layer) (reference string, image v1.Image) {
	t.Helper()
	image, err := images.New(images.Platform("amd64"), layers...)
	if err == nil {
		err = registry.Push(t.Context(), repository, tag, image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return registry.Reference(repository, tag), image
}
