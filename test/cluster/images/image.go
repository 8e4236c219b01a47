// Package images makes container images out of static binaries, without any
// container engine, and serves them from a registry on a loopback port.
package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Spec describes an image of one static binary.
type Spec struct {
	Binary string   // path of the binary; it becomes /Name in the image
	Name   string   // of the binary in the image
	Args   []string // after the binary
	Env    []string // "NAME=value"
}

// Build makes an OCI image. The same binary gives the same layer, so that
// images that differ only in arguments share it.
func Build(s Spec) (v1.Image, error) {
	layer, err := binaryLayer(s)
	if err != nil {
		return nil, fmt.Errorf("build image of %s: %w", s.Binary, err)
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, fmt.Errorf("build image of %s: %w", s.Binary, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("build image of %s: %w", s.Binary, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{"/" + s.Name}
	config.Config.Cmd = s.Args
	config.Config.Env = append([]string{"PATH=/"}, s.Env...)
	return mutate.ConfigFile(image, config)
}

// binaryLayer holds the binary and nothing else, with no times, so that its
// digest depends on the content alone.
func binaryLayer(s Spec) (v1.Layer, error) {
	content, err := os.ReadFile(s.Binary)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Name: s.Name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}
