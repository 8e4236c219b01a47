package imagepull

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/ota/api"
)

// TestPulled is what a node's owner sees who asks for the images of an upgrade with
// curl, and what the cloud sees.
func TestPulled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const size = 6 << 20
	layer := r.layer(1, size)
	reference, image := r.push("app", "2", layer)
	r.registry.SetRate(3 << 20)
	r.hub.Start()
	d := r.upgradable("web", reference)
	pod := d.pod.Name
	r.awaitMark(pod)
	recorded := d.record()
	r.ask(pod)

	var growing []int64
	for _, s := range r.watch(pod) {
		if i := s.Images[0]; i.State == api.Pulling && i.BytesDone > 0 && i.BytesDone < i.BytesTotal {
			growing = append(growing, i.BytesDone)
		}
	}
	if slices.Sort(growing); len(slices.Compact(growing)) < 2 {
		t.Errorf("a watch has shown %v bytes on the way to %d", growing, size)
	}
	got := r.state(pod) // the watch has ended by itself
	digest, err := image.Digest()
	r.must(err)
	if i := got.Images[0]; got.State != api.Ready || got.Revision != d.revision || i.Image != reference || i.Digest != digest.String() ||
		i.BytesDone != i.BytesTotal || i.BytesTotal < size || i.Attempts != 1 {
		t.Errorf("after the watch the state is %+v", got)
	}
	r.awaitImage(reference)
	// That it is queued may be over too soon to be reported.
	seen := slices.DeleteFunc(recorded(d.ready()), func(s string) bool { return s == d.not("Queued") || s == "nothing" })
	if want := []string{d.not("Pulling"), d.ready()}; !slices.Equal(seen, want) {
		t.Errorf("the pod has said %q, want %q", seen, want)
	}
	if want := "True PrepullReady controllerrevision: " + d.revision; d.condition() != want { // which others read
		t.Errorf("the pod says %q, want %q", d.condition(), want)
	}
	d.awaitEvent("ImagePrepulled", reference)
	for _, m := range []struct {
		name, label string
		least       float64
	}{
		{"edgehub_imagepull_pulls_total", `result="Ready"`, 1}, {"edgehub_imagepull_images", `state="Ready"`, 1},
		{"edgehub_imagepull_images", `state="Pulling"`, 0}, {"edgehub_imagepull_duration_seconds_count", "", 1},
		{"edgehub_imagepull_bytes_total", "", size},
	} {
		if got := r.metric(m.name, m.label); got < m.least || got > m.least*2 {
			t.Errorf("metric %s %s is %v, want about %v", m.name, m.label, got, m.least)
		}
	}
	log, err := os.ReadFile(r.hub.Log)
	r.must(err)
	if !regexp.MustCompile(`"image is ready".*` + regexp.QuoteMeta(reference) + `.*` + r.namespace + "/" + pod).Match(log) {
		t.Error("no line of the log has both pod and image")
	}
	d.upgrade()
	r.awaitNothingHeld()
	if queue := r.list(); len(queue) > 0 {
		t.Errorf("after the upgrade the queue is %+v", queue)
	}
}
