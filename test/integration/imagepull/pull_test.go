package imagepull

import (
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// TestPulled is what a node's owner sees who asks for the images of an upgrade with
// curl, and what the cloud sees.
func TestPulled(t *testing.T) {
	t.Parallel()
	each(t, func(r *rig) {
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
		r.must(r.watch(pod, func(s nodeapi.ImagePull) bool {
			if i := s.Images[0]; i.State == nodeapi.Pulling && i.BytesDone > 0 && i.BytesDone < i.BytesTotal {
				growing = append(growing, i.BytesDone)
			}
			return true
		}))
		if slices.Sort(growing); len(slices.Compact(growing)) < 2 {
			t.Errorf("a watch has shown %v bytes on the way to %d", growing, size)
		}
		got := r.state(pod) // the watch has ended by itself
		digest, err := image.Digest()
		r.must(err)
		if i := got.Images[0]; got.State != nodeapi.Ready || got.Revision != d.revision || i.Image != reference || i.Digest != digest.String() ||
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
		for name, least := range map[string]float64{
			`edgehub_imagepull_pulls_total{result="Ready"}`: 1,
			`edgehub_imagepull_images{state="Ready"}`:       1,
			"edgehub_imagepull_duration_seconds_count":      1,
			"edgehub_imagepull_bytes_total":                 size,
			`edgehub_imagepull_images{state="Pulling"}`:     0,
		} {
			if got := r.metric(name); got < least || got > least*2 {
				t.Errorf("metric %s is %v, want about %v", name, got, least)
			}
		}
		if !r.logged(`"image is ready"`, r.namespace+"/"+pod, reference) {
			t.Error("no line of the log has both pod and image")
		}
		d.upgrade()
		r.awaitNothingHeld()
		if queue := r.list(); len(queue) > 0 {
			t.Errorf("after the upgrade the queue is %+v", queue)
		}
	})
}
