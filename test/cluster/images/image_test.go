package images_test

import (
	"archive/tar"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/edgehub-io/edgehub/test/cluster/images"
)

func TestBallast(t *testing.T) {
	for name, test := range map[string]struct {
		layer     func(seed uint64, size int64) (v1.Layer, error)
		mediaType types.MediaType
	}{
		"compressed":   {images.Ballast, types.OCILayer},
		"uncompressed": {images.PlainBallast, types.OCIUncompressedLayer},
	} {
		t.Run(name, func(t *testing.T) {
			const size = 300_000
			digest := func(seed uint64) (v1.Layer, v1.Hash) {
				t.Helper()
				layer, err := test.layer(seed, size)
				if err != nil {
					t.Fatal(err)
				}
				hash, err := layer.Digest()
				if err != nil {
					t.Fatal(err)
				}
				return layer, hash
			}
			layer, first := digest(1)
			if _, again := digest(1); again != first {
				t.Errorf("the same seed gives %s and %s", first, again)
			}
			if _, other := digest(2); other == first {
				t.Error("another seed gives the same")
			}
			if n, err := layer.Size(); err != nil || n < size || n > size+5000 {
				t.Errorf("%d bytes on the line, %v; want %d and little more", n, err, size)
			}
			if mediaType, err := layer.MediaType(); err != nil || mediaType != test.mediaType {
				t.Errorf("media type %s, %v", mediaType, err)
			}
			content, err := layer.Uncompressed()
			if err != nil {
				t.Fatal(err)
			}
			defer content.Close()
			archive := tar.NewReader(content)
			file, err := archive.Next()
			if err != nil || file.Name != "ballast-1-300000" || file.Size != size {
				t.Fatalf("it holds %+v, %v", file, err)
			}
			if n, err := io.Copy(io.Discard, archive); err != nil || n != size {
				t.Errorf("%d bytes unpacked, %v", n, err)
			}
		})
	}
}

func TestIndexOfSeveralPlatforms(t *testing.T) {
	f := newFixture(t)
	index, err := images.Index(f.push(t, "amd", "v1", f.layer), imageFor(t, "arm64", f.layer))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.PushIndex(t.Context(), "many", "v1", index); err != nil {
		t.Fatal(err)
	}
	answer, body, err := f.get(t, "/v2/many/manifests/v1", func(req *http.Request) {
		req.Header.Set("Accept", string(types.OCIImageIndex))
	})
	if err != nil || answer.Header.Get("Content-Type") != string(types.OCIImageIndex) {
		t.Fatalf("answer %v, %v", answer, err)
	}
	var manifest v1.IndexManifest
	if err := json.Unmarshal(body, &manifest); err != nil {
		t.Fatal(err)
	}
	for i, architecture := range []string{"amd64", "arm64"} {
		one := manifest.Manifests[i]
		if one.Platform.Architecture != architecture {
			t.Errorf("image %d is for %s, want %s", i, one.Platform, architecture)
		}
		if answer, _, err := f.get(t, "/v2/many/manifests/"+one.Digest.String()); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("image for %s: %v, %v", architecture, answer, err)
		}
	}
}

func imageFor(t *testing.T, architecture string, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := images.New(images.Platform(architecture), layers...)
	if err != nil {
		t.Fatal(err)
	}
	return image
}
