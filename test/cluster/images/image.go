// Package images makes container images out of static binaries and of random
// bytes, without any container engine, and serves them from a registry on a
// loopback port that counts what it serves, and fails on demand: it refuses, is
// slow, cuts connections, asks for passwords, and answers what a test wants.
//
// A registry that cannot be reached in other ways is one behind a link; see package
// link.
package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
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
	layer, err := Files(map[string]string{"/" + name: binary}, nil)
	return &Program{path: "/" + name, layer: layer}, err
}

// Build makes an OCI image that runs the program with args, and with env, each
// "NAME=value", in its environment. It has the further layers on top.
func (p *Program) Build(args, env []string, more ...v1.Layer) (v1.Image, error) {
	return build(v1.Config{Entrypoint: []string{p.path}, Cmd: args, Env: append([]string{"PATH=/"}, env...)}, append([]v1.Layer{p.layer}, more...))
}

// Command makes an OCI image of layers that runs a command, with nothing but
// /usr/local/bin, /usr/sbin and /usr/bin in its PATH.
func Command(command []string, layers ...v1.Layer) (v1.Image, error) {
	return build(v1.Config{Entrypoint: command, Env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin"}}, layers)
}

func build(config v1.Config, layers []v1.Layer) (v1.Image, error) {
	image, err := New(Platform(runtime.GOARCH), layers...)
	if err != nil {
		return nil, err
	}
	return mutate.Config(image, config)
}

// Platform is Linux on an architecture, named as Go does.
func Platform(architecture string) v1.Platform {
	return v1.Platform{OS: "linux", Architecture: architecture}
}

// New makes an OCI image for a platform out of layers. It has nothing to run.
func New(platform v1.Platform, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layers...)
	if err != nil {
		return nil, fmt.Errorf("append layers: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = platform.OS, platform.Architecture
	return mutate.ConfigFile(image, config)
}

// Files makes a layer of files of the host's, by their path in the image. links are
// symbolic links: their targets by their path. The layer has no times, so that its
// digest depends on the content alone.
func Files(files, links map[string]string) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := addFile(w, path, files[path]); err != nil {
			return nil, fmt.Errorf("pack %s: %w", files[path], err)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(links)) {
		header := &tar.Header{Name: strings.TrimPrefix(path, "/"), Typeflag: tar.TypeSymlink, Linkname: links[path], Mode: 0o777}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zipped(archive.Bytes(), gzip.BestSpeed)
}

func addFile(w *tar.Writer, path, source string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	return add(w, strings.TrimPrefix(path, "/"), int64(info.Mode().Perm()), content)
}

func add(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// Ballast is a layer with one file of size random bytes, which nothing makes
// smaller: the same for the same seed and size. On the line it has the size of the
// file and some hundred bytes more.
func Ballast(seed uint64, size int64) (v1.Layer, error) {
	archive, err := ballast(seed, size)
	if err != nil {
		return nil, err
	}
	return zipped(archive, gzip.NoCompression)
}

// PlainBallast is like Ballast, and is not compressed on the line.
func PlainBallast(seed uint64, size int64) (v1.Layer, error) {
	archive, err := ballast(seed, size)
	return static.NewLayer(archive, types.OCIUncompressedLayer), err
}

func ballast(seed uint64, size int64) ([]byte, error) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	content := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(content) // never fails
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := add(w, fmt.Sprintf("ballast-%d-%d", seed, size), 0o644, content); err != nil {
		return nil, fmt.Errorf("pack ballast: %w", err)
	}
	return archive.Bytes(), w.Close()
}

func zipped(archive []byte, level int) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(level))
}
