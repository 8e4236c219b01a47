package engine

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
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

// labeled is containerd's store, which has all blobs, and nothing of them but their labels.
type labeled struct {
	content.Store
	of map[digest.Digest]map[string]string
}

func (labeled) Status(context.Context, string) (content.Status, error) {
	return content.Status{}, errdefs.ErrNotFound
}

func (labeled) Writer(context.Context, ...content.WriterOpt) (content.Writer, error) {
	return nil, errdefs.ErrAlreadyExists
}

func (l labeled) Info(_ context.Context, d digest.Digest) (content.Info, error) {
	return content.Info{Digest: d, Labels: l.of[d]}, nil
}

func (l labeled) Update(_ context.Context, i content.Info, _ ...string) (content.Info, error) {
	if l.of[i.Digest] == nil {
		l.of[i.Digest] = map[string]string{}
	}
	maps.Copy(l.of[i.Digest], i.Labels)
	return i, nil
}

// TestWhereContentCameFrom is on each blob as after CRI's pull: Spegel offers other nodes nothing else.
func TestWhereContentCameFrom(t *testing.T) {
	store := labeled{of: map[digest.Digest]map[string]string{}}
	layer := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromString("layer"), Size: 5}
	for _, name := range []string{"registry.example.com:5000/shop/web:1", "registry.example.com:5000/shop/api:1", "docker.io/library/web:1"} {
		p := &pull{engine: &Engine{store: store}, name: name}
		if err := p.fetch(t.Context(), layer); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"containerd.io/distribution.source.registry.example.com": "shop/api,shop/web",
		"containerd.io/distribution.source.docker.io":            "library/web",
	}
	if got := store.of[layer.Digest]; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
