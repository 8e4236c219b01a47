package imagepull

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// lostToKill is how many bytes of a blob may be sent twice each time that the hub is killed
// while it fetches the blob. Bytes that have left the registry are lost until the hub has given
// them to containerd: they are in the kernel's buffers, where the registry keeps them to 32 KiB,
// or in what the hub has just read. A share of the size would be no bound for a blob of some
// hundred bytes, which is sent again as a whole.
const lostToKill = 192 << 10

// TestKills kills the hub at random, thirty times, while twenty pods have three images
// each pulled. Invariants 1, 2, 3 and 5.
//
// SEED=n repeats a run, as far as the machine does the same at the same time.
func TestKills(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const pods, perPod, kills = 20, 3, 30
	random := r.random()
	base := r.layer(1, 2<<20) // of all images
	blobs := map[v1.Hash]blob{}
	var daemons []*daemon
	var references []string
	for p := range pods {
		var own []string
		for i := range perPod {
			layer := r.layer(uint64(100+p*perPod+i), 100_000+random.Int64N(600_000))
			reference, image := r.push(fmt.Sprintf("app-%d", i), fmt.Sprintf("v%d", p), base, layer)
			r.noteBlobs(blobs, reference, image)
			own = append(own, reference)
		}
		references = append(references, own...)
		daemons = append(daemons, r.daemonSet(fmt.Sprintf("web-%d", p)))
		daemons[p].change(own...)
		daemons[p].mark(false)
	}
	r.registry.SetRate(1 << 20)
	r.hub.Start()
	for _, d := range daemons {
		r.awaitMark(d.pod.Name)
	}

	asked := make(chan error, 1) // one result
	go func() { asked <- r.askAll(daemons) }()
	amid := 0
	for range kills {
		select {
		case <-time.After(time.Duration(random.Int64N(int64(900 * time.Millisecond)))):
		case <-t.Context().Done():
		}
		if r.pulling() {
			amid++
		}
		r.hub.Kill()
		r.hub.Start()
	}
	r.must(<-asked)
	t.Logf("the hub was killed %d times, %d of them while it pulled", kills, amid)
	if amid < kills/2 {
		t.Errorf("only %d of %d kills came while the hub pulled: the test does not show what it should", amid, kills)
	}
	r.registry.SetRate(0)
	for _, d := range daemons {
		r.awaitReady(d.pod.Name)
	}
	for _, reference := range references {
		r.awaitImage(reference)
	}
	for _, d := range daemons {
		d.awaitCondition(d.ready())
	}
	r.expectBytes(blobs)

	for _, d := range daemons {
		d.upgrade()
	}
	r.awaitNothingHeld()
	if queue := r.list(); len(queue) > 0 {
		t.Errorf("after the upgrades the queue is %+v", queue)
	}
	for _, reference := range references {
		if r.criImages()[reference] == nil {
			t.Errorf("%s went when it was let go of", reference)
		}
	}
}

// random is seeded by SEED, or anew, and logs the seed.
func (r *rig) random() *rand.Rand {
	r.Helper()
	seed := rand.Uint64N(1_000_000)
	if text := os.Getenv("SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		r.must(err)
	}
	r.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// askAll asks for the images of all pods, one after the other, and again where the hub
// was not there to answer. Nobody asks again once a request was answered with 200.
func (r *rig) askAll(daemons []*daemon) error {
	for _, d := range daemons {
		path := r.path(d.pod.Name)
		for deadline := time.Now().Add(time.Minute); ; {
			a := r.call(http.MethodPost, path)
			if a.code == http.StatusOK {
				break
			}
			if time.Now().After(deadline) || a.code != 0 {
				return fmt.Errorf("POST %s: %v", path, a)
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-r.Context().Done():
				return r.Context().Err()
			}
		}
	}
	return nil
}

// pulling reports whether an image is being pulled right now.
func (r *rig) pulling() bool {
	r.Helper()
	for _, s := range r.list() {
		if s.State == api.Pulling {
			return true
		}
	}
	return false
}

// blob is a part of an image.
type blob struct {
	name string
	size int64
}

// noteBlobs notes all that an image consists of.
func (r *rig) noteBlobs(blobs map[v1.Hash]blob, reference string, image v1.Image) {
	r.Helper()
	digest, err := image.Digest()
	r.must(err)
	size, err := image.Size()
	r.must(err)
	blobs[digest] = blob{"manifest of " + reference, size}
	manifest, err := image.Manifest()
	r.must(err)
	blobs[manifest.Config.Digest] = blob{"configuration of " + reference, manifest.Config.Size}
	for i, layer := range manifest.Layers {
		blobs[layer.Digest] = blob{fmt.Sprintf("layer %d of %s", i, reference), layer.Size}
	}
}

// expectBytes holds what was sent of each blob against its size, and what was sent of
// all of them against 1.05 times theirs.
func (r *rig) expectBytes(blobs map[v1.Hash]blob) {
	r.Helper()
	asked := map[string]int64{}
	for _, q := range r.registry.Requests() {
		if q.Method == http.MethodGet {
			asked[q.Digest]++
		}
	}
	var sent, size, most int64
	for digest, b := range blobs {
		n := r.registry.BytesOf(digest)
		sent, size, most = sent+n, size+b.size, max(most, n-b.size)
		if bound := b.size + (asked[digest.String()]-1)*min(lostToKill, b.size); n < b.size || n > bound {
			r.Errorf("%d bytes were sent of the %s, which has %d and was asked for %d times; want at most %d", n, b.name, b.size, asked[digest.String()], bound)
		}
	}
	share := float64(sent) / float64(size)
	r.Logf("%d blobs of %d bytes: %d were sent, %.4f times as many; of one, %d too many at most", len(blobs), size, sent, share, most)
	if share > 1.05 {
		r.Errorf("%d bytes were sent of blobs that have %d", sent, size)
	}
}
