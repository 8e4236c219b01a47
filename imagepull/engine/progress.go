package engine

import (
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// reportEvery is how often progress is reported while there is some.
const reportEvery = 500 * time.Millisecond

// meter sums up how much of an image is there.
type meter struct {
	report   func(engineapi.Progress) // may be nil
	reported time.Time
	blobs    map[digest.Digest]int64 // how much of each is there
	sum      engineapi.Progress
}

// expect sets what the image consists of; each blob counts once.
func (m *meter) expect(blobs []ocispec.Descriptor) {
	m.blobs, m.sum = map[digest.Digest]int64{}, engineapi.Progress{}
	for _, b := range blobs {
		if _, found := m.blobs[b.Digest]; !found {
			m.blobs[b.Digest] = 0
			m.sum.Total += b.Size
		}
	}
	m.tell(true)
}

// set notes how much of a blob is there. Blobs that are not expected do not count.
func (m *meter) set(blob ocispec.Descriptor, there int64) {
	before, expected := m.blobs[blob.Digest]
	if !expected || before == there {
		return
	}
	m.blobs[blob.Digest] = there
	m.sum.Done += there - before
	m.tell(m.sum.Done == m.sum.Total)
}

func (m *meter) tell(now bool) {
	if m.report == nil || !now && time.Since(m.reported) < reportEvery {
		return
	}
	m.reported = time.Now()
	m.report(m.sum)
}
