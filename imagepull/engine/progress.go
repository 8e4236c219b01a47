package engine

import (
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// reportEvery is the shortest interval between reports.
const reportEvery = 500 * time.Millisecond

// meter reports how many bytes of an image are on the node.
type meter struct {
	report   func(engineapi.Progress) // may be nil
	reported time.Time
	blobs    map[digest.Digest]int64 // bytes of each on the node
	sum      engineapi.Progress
}

// expect sets the blobs of the image; duplicates count once.
func (m *meter) expect(blobs []ocispec.Descriptor) {
	m.blobs, m.sum = map[digest.Digest]int64{}, engineapi.Progress{}
	for _, b := range blobs {
		if _, found := m.blobs[b.Digest]; !found {
			m.blobs[b.Digest] = 0
			m.sum.Total += b.Size
		}
	}
	m.notify(true)
}

// set sets the bytes of a blob that are on the node. It ignores blobs that are not expected.
func (m *meter) set(blob ocispec.Descriptor, present int64) {
	before, expected := m.blobs[blob.Digest]
	if !expected || before == present {
		return
	}
	m.blobs[blob.Digest] = present
	m.sum.Done += present - before
	m.notify(m.sum.Done == m.sum.Total)
}

func (m *meter) notify(now bool) {
	if m.report == nil || !now && time.Since(m.reported) < reportEvery {
		return
	}
	m.reported = time.Now()
	m.report(m.sum)
}
