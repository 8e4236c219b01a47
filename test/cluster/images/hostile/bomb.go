package hostile

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
)

// Bomb is a layer of files that hold nothing but zeros: little on the line, and much on
// a disk.
func Bomb(files int, size int64) (content []byte, diffID string, err error) {
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	sum := sha256.New()
	archive := tar.NewWriter(io.MultiWriter(zip, sum))
	zeros := make([]byte, size)
	for i := range files {
		header := &tar.Header{Name: fmt.Sprintf("%05d/%05d", i/1000, i), Typeflag: tar.TypeReg, Mode: 0o644, Size: size}
		if err := archive.WriteHeader(header); err != nil {
			return nil, "", err
		}
		if _, err := archive.Write(zeros); err != nil {
			return nil, "", err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, "", err
	}
	if err := zip.Close(); err != nil {
		return nil, "", err
	}
	return zipped.Bytes(), "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}
