package pulltest

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is a file in a tar.
type File struct {
	Name string
	Text []byte
}

// Layout returns the files of an OCI layout with an image under a name: two files about the layout, manifest, configuration, layers.
func Layout(t *testing.T, image v1.Image, called string) []File {
	t.Helper()
	manifest, err := image.RawManifest()
	config, errConfig := image.RawConfigFile()
	digest, errDigest := image.Digest()
	id, errID := image.ConfigName()
	layers, errLayers := image.Layers()
	if err := errors.Join(err, errConfig, errDigest, errID, errLayers); err != nil {
		t.Fatal(err)
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{map[string]any{
		"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest.String(), "size": len(manifest),
		"annotations": map[string]string{"org.opencontainers.image.ref.name": called},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	files := []File{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", index}, blob(digest, manifest), blob(id, config)}
	for _, l := range layers {
		b, err := layerBlob(l)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(f File) bool { return f.Name == b.Name }) {
			files = append(files, b)
		}
	}
	return files
}

func blob(d v1.Hash, text []byte) File { return File{"blobs/" + d.Algorithm + "/" + d.Hex, text} }

func layerBlob(l v1.Layer) (File, error) {
	d, err := l.Digest()
	if err != nil {
		return File{}, err
	}
	from, err := l.Compressed()
	if err != nil {
		return File{}, err
	}
	text, err := io.ReadAll(from)
	return blob(d, text), errors.Join(err, from.Close())
}

// Tar writes files to a tar, and returns its path.
func Tar(t *testing.T, files []File) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "images.tar")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(out)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Name: f.Name, Mode: 0o644, Size: int64(len(f.Text))})
		if err == nil {
			_, err = w.Write(f.Text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// Saved writes an image as docker save does, with layers in gzip, and returns the path.
func Saved(t *testing.T, image v1.Image, reference string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "saved.tar")
	tag, err := name.NewTag(reference)
	if err == nil {
		err = tarball.WriteToFile(path, tag, image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
