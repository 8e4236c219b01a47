package engine

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/test/cluster/images/hostile"
)

// TestLeftovers of images that came to nothing do not pile up: a registry has the tag
// stand for another image at each attempt, and never sends its last layer.
func TestLeftovers(t *testing.T) {
	const size = 4 << 20
	leftovers(t, size, func(r *rig, h *hostile.Registry, attempt int) hostile.Descriptor {
		layer, _, diff := r.layer(h, r.ballast(uint64(attempt), size)[0])
		missing := hostile.Descriptor{MediaType: hostile.Layer, Digest: digestOf(strconv.Itoa(attempt)), Size: 1000}
		return h.Image([]hostile.Descriptor{layer, missing}, []string{diff, missing.Digest})
	})
}

// TestLeftoverDocuments do not pile up either: the manifest is another one at each
// attempt, and its configuration never comes.
func TestLeftoverDocuments(t *testing.T) {
	const size = 3 << 20
	leftovers(t, size, func(_ *rig, h *hostile.Registry, attempt int) hostile.Descriptor {
		missing := hostile.Descriptor{MediaType: hostile.Config, Digest: digestOf(strconv.Itoa(attempt)), Size: 1000}
		return h.PutJSON(hostile.Manifest, map[string]any{
			"schemaVersion": 2, "mediaType": hostile.Manifest, "config": missing, "layers": []hostile.Descriptor{},
			"annotations": map[string]string{"padding": strings.Repeat(strconv.Itoa(attempt), size)},
		})
	})
}

// leftovers makes several attempts to pull an image that cannot be had, and is another one
// each time. Each attempt fetches size bytes at least, of which not much may be left.
// image returns the manifest for an attempt.
func leftovers(t *testing.T, size int64, image func(r *rig, h *hostile.Registry, attempt int) hostile.Descriptor) {
	t.Helper()
	const attempts = 6
	eachAlone(t, func(r *rig) {
		h := r.hostile()
		before := r.stored()
		for i := range attempts {
			h.Tag("1", image(r, h, i))
			r.refused(r.engine, engineapi.NotFound, engineapi.Request{Image: h.Reference("app", "1")})
		}
		if h.Sent() < attempts*size {
			r.Fatalf("only %d bytes were fetched", h.Sent())
		}
		r.eventually(func() error {
			if took := r.stored() - before; took > 2*size {
				return fmt.Errorf("%d bytes are left of %d attempts with %d each", took, attempts, size)
			}
			return nil
		})
	})
}

// stored is how many bytes of content containerd has.
func (r *rig) stored() int64 {
	r.Helper()
	sum := int64(0)
	root := filepath.Join(r.containerd.Dir(), "root", "io.containerd.content.v1.content")
	_ = filepath.WalkDir(root, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil { // else containerd has removed it meanwhile
			if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
