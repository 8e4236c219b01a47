package imagepull

import (
	"io"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/test/cluster/images/hostile"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// TestRegistryThatSlowsDown sends a byte each 0.9 seconds from the midst of a layer on. It
// does not keep the only worker from another pod's image, and is asked again later.
func TestRegistryThatSlowsDown(t *testing.T) {
	t.Parallel()
	const window = time.Minute // over which the rate is measured
	const begin = 20 << 10     // is less than has to come in it
	each(t, func(r *rig) {
		h := hostile.Serve()
		r.Cleanup(h.Close)
		r.must(h.WriteHosts(r.containerd.HostsDir()))
		layer := r.layer(1, 4<<20)
		from, err := layer.Compressed()
		r.must(err)
		content, err := io.ReadAll(from)
		r.must(err)
		diff, err := layer.DiffID()
		r.must(err)
		blob := h.Put(hostile.Layer, content)
		h.Tag("1", h.Image([]hostile.Descriptor{blob}, []string{diff.String()}))
		h.Answer(blob.Digest, hostile.Slowing(content, begin, 900*time.Millisecond))
		reference, _ := r.push("good", "2", r.layer(2, 1<<20))
		r.hub.Start()
		bad, good := r.upgradable("bad", h.Reference("app", "1")), r.upgradable("good", reference)
		r.askOnceMarked(bad.pod.Name)
		r.eventually("the layer has begun to come in", func() bool { return h.Sent() > begin })
		start := time.Now()
		r.askOnceMarked(good.pod.Name)
		poll.Until(r, window+poll.Patience, "the other pod's image is there", func() bool {
			return r.state(good.pod.Name).State == nodeapi.Ready
		})
		r.Logf("the other pod's image was there after %v", time.Since(start))
		h.Answer(blob.Digest, nil)
		r.awaitReady(bad.pod.Name)
	})
}
