package imagepull

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/edgehub-io/edgehub/test/cluster/images"
)

// TestResume has half of a layer of 100 MB when the hub is killed, or the registry's
// connection breaks. Invariant 2.
func TestResume(t *testing.T) {
	t.Parallel()
	const size, half = 100_000_000, 50_000_000
	ways := map[string]struct {
		before func(*rig, v1.Layer)
		amid   func(*rig)
	}{
		"the hub is killed": {
			before: func(r *rig, _ v1.Layer) { r.registry.SetRate(40_000_000) }, // else the half is over too soon
			amid: func(r *rig) {
				r.hub.Kill()
				r.registry.SetRate(0)
				r.hub.Start()
			},
		},
		"the registry is cut": {
			before: func(r *rig, layer v1.Layer) {
				digest, err := layer.Digest()
				r.must(err)
				r.registry.CutAfter(digest, half, images.Reset)
			},
			amid: func(*rig) {},
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(r *rig) {
				layer := r.layer(1, size)
				reference, _ := r.push("app", "2", layer)
				r.hub.Start()
				d := r.upgradable("web", reference)
				way.before(r, layer)
				r.askOnceMarked(d.pod.Name)
				r.awaitBytes(layer, half)
				way.amid(r)
				r.awaitReady(d.pod.Name)
				r.atMost(1.05, layer)
				r.awaitImage(reference)
			})
		})
	}
}
