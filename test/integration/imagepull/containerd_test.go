package imagepull

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// TestContainerdAbsent at the start and killed amid a pull: the hub serves on, says
// what is wrong, and goes on by itself. Invariant 7.
func TestContainerdAbsent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	layer := r.layer(1, 16<<20)
	reference, _ := r.push("app", "2", layer)
	r.must(r.containerd.Kill())
	if err := os.Remove(r.containerd.Socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	r.hub.Start()
	d := r.upgradable("web", reference)
	pod := d.pod.Name
	r.askOnceMarked(pod)
	r.expectUnavailable(d)

	r.registry.SetRate(4 << 20)
	r.must(r.containerd.Start(t.Context()))
	r.awaitBytes(layer, 4<<20) // nobody has asked again
	r.must(r.containerd.Kill())
	r.expectUnavailable(d)
	r.registry.SetRate(0) // not before: the kernel takes in what nobody reads any more
	r.must(r.containerd.Start(t.Context()))
	r.awaitReady(pod)
	r.atMost(1.05, layer)
	r.awaitImage(reference)
	d.awaitCondition(d.ready())
}

func (r *rig) expectUnavailable(d *daemon) {
	r.Helper()
	image := r.awaitFailure(d.pod.Name, "ContainerdUnavailable")
	if image.NextRetry == nil || !strings.Contains(image.LastError, r.containerd.Socket()) {
		r.Errorf("the failure does not say when it is tried again, or of which socket: %+v", image)
	}
	for _, path := range []string{nodeapi.Healthz, nodeapi.Readyz, nodeapi.Pods, nodeapi.Metrics, nodeapi.ImagePulls} {
		a := r.call(http.MethodGet, path)
		r.expect(a, http.StatusOK, "")
		if a.took > soon {
			r.Errorf("without containerd, GET %s took %v", path, a.took)
		}
	}
	d.awaitCondition(d.not("ContainerdUnavailable"))
}
