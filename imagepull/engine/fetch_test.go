package engine

import (
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine/registry"
)

// TestIngestOfCRI is waited for only as long as it may become the blob.
func TestIngestOfCRI(t *testing.T) {
	const size = 1 << 20
	const perLook = int64(registry.MinRate * lookAgain / time.Second)
	tests := map[string]struct {
		total, grows int64 // between two looks
		idle         time.Duration
		want         time.Duration // how long it is waited for; 0: to the end
	}{
		"a blob grows":                     {total: size, grows: 2 * perLook},
		"a blob of unknown size grows":     {grows: 2 * perLook},
		"a blob was last written long ago": {total: size, idle: abandonedAfter + time.Second, want: -1},
		"a blob grows too slowly":          {total: size, grows: perLook / 2, want: abandonedAfter},
		"a blob has another size":          {total: size + 1, grows: 2 * perLook, want: -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var i ingest
			now := time.Now()
			s := content.Status{Total: tt.total, UpdatedAt: now.Add(-tt.idle)}
			waited := time.Duration(-1)
			for ; s.Offset < size && i.isComing(s, ocispec.Descriptor{Size: size}, now); s.Offset += tt.grows {
				waited = max(waited, 0) + lookAgain
				now = now.Add(lookAgain)
			}
			if tt.want == 0 && s.Offset < size || tt.want != 0 && waited.Round(time.Second) != tt.want.Round(time.Second) {
				t.Errorf("waited for %v, up to %d bytes", waited, s.Offset)
			}
		})
	}
}
