package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Files makes a layer of files of the host's, by their path in the image. links are
// symbolic links: their targets by their path.
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
	header := &tar.Header{Name: strings.TrimPrefix(path, "/"), Typeflag: tar.TypeReg, Mode: int64(info.Mode().Perm()), Size: int64(len(content))}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// Command makes an OCI image of layers that runs a command, with nothing but
// /usr/local/bin, /usr/sbin and /usr/bin in its PATH.
func Command(command []string, layers ...v1.Layer) (v1.Image, error) {
	image, err := New(Platform(runtime.GOARCH), layers...)
	if err != nil {
		return nil, err
	}
	return configure(image, func(config *v1.ConfigFile) {
		config.Config.Entrypoint = command
		config.Config.Env = []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin"}
	})
}
