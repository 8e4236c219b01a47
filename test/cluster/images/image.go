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

// Program is a static binary as the layer of an image. Images that differ only
// in arguments share it.
type Program struct {
	path  string // in the image
	layer v1.Layer
}

// Build makes an OCI image that runs the program with args, and with env, each
// "NAME=value", in its environment.
func (p *Program) Build(args, env []string) (v1.Image, error) {
	image, err := p.build(args, env)
	if err != nil {
		return nil, fmt.Errorf("build image of %s: %w", p.path, err)
	}
	return image, nil
}

func (p *Program) build(args, env []string) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, p.layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{p.path}
	config.Config.Cmd = args
	config.Config.Env = append([]string{"PATH=/"}, env...)
	return mutate.ConfigFile(image, config)
}

// NewProgram packs a binary, which gets the path /name in the image.
func NewProgram(binary, name string) (*Program, error) {
	layer, err := newLayer(binary, name)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", binary, err)
	}
	return &Program{path: "/" + name, layer: layer}, nil
}

// newLayer holds the binary and nothing else, with no times, so that its digest
// depends on the content alone.
func newLayer(binary, name string) (v1.Layer, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}
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
