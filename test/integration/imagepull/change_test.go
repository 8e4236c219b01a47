package imagepull

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/test/cluster/images"
)

// slowly is a rate at which no image of these tests comes to its end.
const slowly = 256 << 10

// TestTargetChanged amid a pull: what is no longer wanted is not pulled any more, and
// the next target is pulled for those who ask again. What was fetched for the one before
// is still there then.
func TestTargetChanged(t *testing.T) {
	t.Parallel()
	each(t, func(r *rig) {
		r.hub.Start()
		layer := r.layer(1, 16<<20)
		two, _ := r.push("app", "2", layer)
		three, _ := r.push("app", "3", layer, r.layer(2, 1<<20))
		d := r.upgradable("web", two)
		pod := d.pod.Name
		r.registry.SetRate(slowly)
		r.askOnceMarked(pod)
		last := r.lastLine(pod)
		r.awaitBytes(layer, 1<<20)

		d.change(three)
		d.mark(false)
		if got := <-last; got.State != nodeapi.Superseded {
			t.Errorf("a watch has ended with %+v", got)
		}
		d.awaitCondition(d.not("TargetChanged"))
		if requests := r.registry.Requests(); slices.ContainsFunc(requests, func(q images.Request) bool { return strings.HasSuffix(q.Path, "/3") }) {
			t.Error("the next target is pulled, and nobody has asked")
		}
		r.expect(r.call(t.Context(), http.MethodGet, r.path(pod)), http.StatusNotFound, "POST to this path starts it")

		r.registry.SetRate(0)
		r.ask(pod)
		r.awaitReady(pod)
		r.atMost(1.05, layer)
		r.awaitImage(three)
		if r.criImages()[two] != nil {
			t.Error("the image of the target before is there")
		}
		d.awaitCondition(d.ready())

		// What another process wanted, this one does not know of.
		r.hub.Kill()
		r.hub.Start()
		r.eventually("nothing of the target before is held", func() bool {
			return !slices.ContainsFunc(r.holds(), func(line string) bool { return strings.Contains(line, two) })
		})
		d.upgrade()
		r.awaitNothingHeld()
	})
}

// TestCancelled amid a pull is as if nobody had asked, and may be asked for again.
func TestCancelled(t *testing.T) {
	t.Parallel()
	each(t, func(r *rig) {
		r.hub.Start()
		layer := r.layer(1, 4<<20)
		reference, _ := r.push("app", "2", layer)
		d := r.upgradable("web", reference)
		pod := d.pod.Name
		r.registry.SetRate(slowly)
		r.askOnceMarked(pod)
		last := r.lastLine(pod)
		r.awaitBytes(layer, 1<<20)
		d.awaitCondition(d.not("Pulling"))

		r.expect(r.call(t.Context(), http.MethodDelete, r.path(pod)), http.StatusOK, "cancelled for pod "+r.namespace+"/"+pod)
		if got := <-last; got.State != nodeapi.Cancelled {
			t.Errorf("a watch has ended with %+v", got)
		}
		r.awaitNothingHeld()
		d.awaitCondition("nothing")
		r.hub.Kill()
		r.hub.Start()
		r.awaitMark(pod)
		r.expect(r.call(t.Context(), http.MethodDelete, r.path(pod)), http.StatusNotFound, "no images are being pulled")
		r.registry.SetRate(0)
		r.ask(pod)
		r.awaitReady(pod)
		d.awaitCondition(d.ready())
	})
}

// TestUnasked is what a rollout asks for. Without jitter it is pulled at once; cancelled,
// it does not begin anew by itself.
func TestUnasked(t *testing.T) {
	t.Parallel()
	each(t, func(r *rig) {
		r.hub.Start()
		reference, _ := r.push("app", "2", r.layer(1, 100<<10))
		d := r.daemonSet("web")
		d.change(reference)
		d.mark(true)
		r.awaitMark(d.pod.Name)
		began := time.Now()
		d.awaitCondition(d.ready())
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("without jitter it took %v", took)
		}
		r.awaitImage(reference)
		r.expect(r.call(t.Context(), http.MethodDelete, r.path(d.pod.Name)), http.StatusOK, "cancelled")
		r.awaitNothingHeld()
		r.hub.Kill()
		r.hub.Start()
		r.awaitMark(d.pod.Name)
		d.awaitCondition("nothing")
		if queue := r.list(); len(queue) > 0 {
			t.Errorf("it has begun anew: %+v", queue)
		}
	}, "--image-pull-jitter=0")
}

// TestJitter holds back what a rollout asks for, and not what the node's owner asks for.
func TestJitter(t *testing.T) {
	t.Parallel()
	r := newBareRig(t, "--image-pull-jitter=24h", "--container-runtime-endpoint="+t.TempDir()+"/none.sock")
	r.hub.Start()
	rollout, owner := r.daemonSet("rollout"), r.daemonSet("owner")
	for _, d := range []*daemon{rollout, owner} {
		d.change("registry.invalid/" + d.name + ":2")
		d.mark(d == rollout)
		r.awaitMark(d.pod.Name)
	}
	r.ask(owner.pod.Name)
	r.awaitFailure(owner.pod.Name, "ContainerdUnavailable")
	// It would have come first: it is the older one.
	r.awaitState(rollout.pod.Name, "the pull waits", func(s nodeapi.ImagePull) bool { return s.State == nodeapi.Queued })
	rollout.awaitCondition(rollout.not("Queued"))
}

// lastLine follows a pre-pull, and has the last line of that once it has ended.
func (r *rig) lastLine(pod string) <-chan nodeapi.ImagePull {
	r.Helper()
	begun := make(chan struct{})
	last := make(chan nodeapi.ImagePull, 1) // one line
	go func() {
		var seen nodeapi.ImagePull
		_ = r.watch(pod, func(s nodeapi.ImagePull) bool {
			if seen.Pod == "" {
				close(begun)
			}
			seen = s
			return true
		})
		last <- seen
	}()
	select {
	case <-begun:
	case <-time.After(soon):
		r.Fatal("a watch has shown nothing")
	}
	return last
}
