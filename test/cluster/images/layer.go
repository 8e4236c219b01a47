package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Ballast is a layer with one file of size random bytes, which nothing makes
// smaller: the same for the same seed and size. On the line it has the size of the
// file and some hundred bytes more.
func Ballast(seed uint64, size int64) (v1.Layer, error) {
	archive, err := ballast(seed, size)
	if err != nil {
		return nil, fmt.Errorf("pack ballast: %w", err)
	}
	return zipped(archive, gzip.NoCompression)
}

// PlainBallast is like Ballast, and is not compressed on the line.
func PlainBallast(seed uint64, size int64) (v1.Layer, error) {
	archive, err := ballast(seed, size)
	if err != nil {
		return nil, fmt.Errorf("pack ballast: %w", err)
	}
	return static.NewLayer(archive, types.OCIUncompressedLayer), nil
}

func ballast(seed uint64, size int64) ([]byte, error) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	content := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(content) // never fails
	return pack(fmt.Sprintf("ballast-%d-%d", seed, size), 0o644, content)
}

// pack makes an archive of one file, with no times, so that its digest depends on
// the content alone.
func pack(name string, mode int64, content []byte) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

func zipped(archive []byte, level int) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(level))
}
