package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// sumsFile is in the form that `sha256sum -c` reads.
const sumsFile = "SHA256SUMS"

// writeSums lists all files of the folder, sorted by path.
func writeSums(folder string) error {
	var list bytes.Buffer
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil || name == sumsFile {
			return err
		}
		sum, err := sumOf(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", sum, filepath.ToSlash(name))
		return nil
	})
	if err != nil {
		return err
	}
	return write(filepath.Join(folder, sumsFile), list.Bytes())
}

// sumOf returns the SHA-256 of a file, in hexadecimal.
func sumOf(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}
