package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// entry is one file of an archive. All belong to root and have the date of the release.
type entry struct {
	path   string // in the archive
	source string
	mode   int64
}

// packArchive makes edgehub-VERSION-linux-ARCHITECTURE.tar.gz, all in one folder.
func (r release) packArchive(architecture string) error {
	folder := fmt.Sprintf("edgehub-%s-linux-%s", r.version, architecture)
	entries := []entry{
		{path: folder + "/LICENSE", source: filepath.Join(r.sources, "LICENSE"), mode: 0o644},
		{path: folder + "/README.md", source: filepath.Join(r.sources, "README.md"), mode: 0o644},
	}
	for _, program := range programs {
		entries = append(entries, entry{path: folder + "/" + program, source: r.program(architecture, program), mode: 0o755})
	}
	archive, err := packTar(entries, r.date)
	if err != nil {
		return err
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.DefaultCompression) // a header without a name and a time
	if err != nil {
		return err
	}
	if _, err := w.Write(archive); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return write(filepath.Join(r.out, folder+".tar.gz"), zipped.Bytes())
}

// packTar makes an archive of files in the order given.
func packTar(entries []entry, date time.Time) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, e := range entries {
		content, err := os.ReadFile(e.source)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.path, Mode: e.mode, Size: int64(len(content)), ModTime: date, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}
