package engine

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// TestLeftovers of images that came to nothing do not pile up: a registry has the tag stand for another image at
// each attempt, and never sends the last layer, or the configuration of a large manifest.
func TestLeftovers(t *testing.T) {
	const size, attempts = 3 << 20, 6
	for name, config := range map[string]bool{"layers": false, "manifests": true} {
		t.Run(name, func(t *testing.T) {
			eachAlone(t, func(r *rig) {
				before := r.stored()
				for i := range attempts {
					layers := r.ballast(uint64(i), size, 1000)
					reference, image := r.push("app", "1", layers...)
					missing := r.digest(layers[1])
					if config {
						manifest, err := image.Manifest()
						r.must(err)
						manifest.Annotations = map[string]string{"padding": strings.Repeat(strconv.Itoa(i), size)}
						text, err := json.Marshal(manifest)
						r.must(err)
						r.must(r.registry.PutManifest("app", "1", types.OCIManifestSchema1, text))
						missing = manifest.Config.Digest
					}
					r.registry.Answer(missing.String(), http.NotFound)
					r.refused(r.engine, engineapi.NotFound, engineapi.Request{Image: reference})
				}
				if sent := r.registry.Bytes(); sent < attempts*size {
					r.Fatalf("only %d bytes were fetched", sent)
				}
				r.eventually(func() error {
					if took := r.stored() - before; took > 2*size {
						return fmt.Errorf("%d bytes are left of %d attempts with %d each", took, attempts, size)
					}
					return nil
				})
			})
		})
	}
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
