package imagepull

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/ota/api"
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
	for _, path := range []string{api.Healthz, api.Readyz, api.Pods, api.Metrics, api.ImagePulls} {
		a := r.call(http.MethodGet, path)
		r.expect(a, http.StatusOK, "")
		if a.took > soon {
			r.Errorf("without containerd, GET %s took %v", path, a.took)
		}
	}
	d.awaitCondition(d.not("ContainerdUnavailable"))
}

// TestNoContainerdAnyMore is a hub that is started without a container runtime: what it held before, nobody
// would ever release.
func TestNoContainerdAnyMore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reference, _ := r.push("app", "2", r.layer(1, 1<<20))
	r.hub.Start()
	d := r.upgradable("web", reference)
	r.askOnceMarked(d.pod.Name)
	r.awaitReady(d.pod.Name)
	r.awaitImage(reference)

	r.hub.AddArgs("--container-runtime-endpoint=")
	r.must(r.containerd.Kill())
	r.hub.Stop()
	r.hub.Start()
	r.eventually("the log says how to release what is held", func() bool { return r.logged("cannot be released", "ctr -a "+r.containerd.Socket()) })
	r.must(r.containerd.Start(t.Context()))
	r.awaitNothingHeld()
	r.eventually("the log says what was released", func() bool { return r.logged("are not held any more", reference) })
}

// logged reports whether a line of the hub's log has all of the words.
func (r *rig) logged(words ...string) bool {
	r.Helper()
	log, err := os.ReadFile(r.hub.Log)
	r.must(err)
	for line := range strings.Lines(string(log)) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return true
		}
	}
	return false
}
