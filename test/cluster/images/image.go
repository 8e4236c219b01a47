// Package images makes container images out of static binaries and of random
// bytes, without any container engine, and serves them from a registry on a
// loopback port that counts what it serves, and fails on demand: it refuses, is
// slow, cuts connections, and asks for passwords.
//
// A registry that cannot be reached in other ways is one behind a link; see package
// link.
package images

import (
	"compress/gzip"
	"fmt"
	"os"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Program is a static binary as the layer of an image. Images that differ only
// in arguments share it.
type Program struct {
	path  string // in the image
	layer v1.Layer
}

// NewProgram packs a binary, which gets the path /name in the image.
func NewProgram(binary, name string) (*Program, error) {
	layer, err := newLayer(binary, name)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", binary, err)
	}
	return &Program{path: "/" + name, layer: layer}, nil
}

func newLayer(binary, name string) (v1.Layer, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	archive, err := pack(name, 0o755, content)
	if err != nil {
		return nil, err
	}
	return zipped(archive, gzip.BestSpeed)
}

// Build makes an OCI image that runs the program with args, and with env, each
// "NAME=value", in its environment. It has the further layers on top.
func (p *Program) Build(args, env []string, more ...v1.Layer) (v1.Image, error) {
	image, err := New(Platform(runtime.GOARCH), append([]v1.Layer{p.layer}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("build image of %s: %w", p.path, err)
	}
	return configure(image, func(config *v1.ConfigFile) {
		config.Config.Entrypoint = []string{p.path}
		config.Config.Cmd = args
		config.Config.Env = append([]string{"PATH=/"}, env...)
	})
}

// Platform is Linux on an architecture, named as Go does.
func Platform(architecture string) v1.Platform {
	return v1.Platform{OS: "linux", Architecture: architecture}
}

// New makes an OCI image for a platform out of layers. It has nothing to run.
func New(platform v1.Platform, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layers...)
	if err != nil {
		return nil, fmt.Errorf("append layers: %w", err)
	}
	return configure(image, func(config *v1.ConfigFile) {
		config.OS, config.Architecture = platform.OS, platform.Architecture
	})
}

// Index makes an OCI index of images for different platforms.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("read image: %w", err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()},
		})
	}
	return index, nil
}

func configure(image v1.Image, change func(*v1.ConfigFile)) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	config = config.DeepCopy()
	change(config)
	return mutate.ConfigFile(image, config)
}
