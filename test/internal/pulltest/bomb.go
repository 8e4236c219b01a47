package pulltest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Zeros is a layer of files that hold nothing but zeros: little on the line, and much on a disk.
func Zeros(files int, size int64) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			archive := tar.NewWriter(w)
			var err error
			for i := 0; i < files && err == nil; i++ {
				err = archive.WriteHeader(&tar.Header{Name: fmt.Sprintf("%05d/%05d", i/1000, i), Typeflag: tar.TypeReg, Mode: 0o644, Size: size})
				if err == nil {
					_, err = archive.Write(make([]byte, size))
				}
			}
			_ = w.CloseWithError(errors.Join(err, archive.Close()))
		}()
		return r, nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
