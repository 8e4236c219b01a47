// Package files reads, writes and compares files and symbolic links together with their owner
// and mode.
package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/edgehub-io/edgehub/cache/durable"
)

// Entry describes what is at a path: nothing, a file or a symbolic link. It identifies a
// file's content by its checksum.
type Entry struct {
	Kind   string      `json:"kind,omitempty"` // "" (nothing), "file" or "link"
	Mode   fs.FileMode `json:"mode,omitempty"`
	UID    int         `json:"uid,omitempty"`
	GID    int         `json:"gid,omitempty"`
	Sum    string      `json:"sum,omitempty"`    // SHA-256 of a file
	Target string      `json:"target,omitempty"` // of a link
}

// The kinds of an Entry, beside nothing.
const (
	KindFile = "file"
	KindLink = "link"
)

// Sum returns the SHA-256 of content, in hexadecimal.
func Sum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Read returns what is at a path, and a file's contents.
func Read(path string) (Entry, []byte, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, nil, nil
	}
	if err != nil {
		return Entry{}, nil, err
	}
	e := Entry{Mode: info.Mode().Perm()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID = int(stat.Uid), int(stat.Gid)
	}
	switch {
	case info.Mode().IsRegular():
		content, err := os.ReadFile(path)
		e.Kind, e.Sum = KindFile, Sum(content)
		return e, content, err
	case info.Mode()&fs.ModeSymlink != 0:
		e.Kind, e.Mode = KindLink, 0
		e.Target, err = os.Readlink(path)
		return e, nil, err
	}
	return e, nil, fmt.Errorf("%s is neither a file nor a symbolic link", path)
}

// Write creates, replaces or removes path as e describes, with content if that is a file. After a
// crash there is the old or the new, whole.
func Write(path string, e Entry, content []byte) error {
	if e.Kind == "" {
		return durable.Remove(path)
	}
	return durable.Replace(path, func(fresh string) error {
		if e.Kind == KindLink {
			return os.Symlink(e.Target, fresh)
		}
		f, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		if err == nil {
			err = errors.Join(f.Chown(e.UID, e.GID), f.Chmod(e.Mode), f.Sync())
		}
		return errors.Join(err, f.Close())
	})
}

// MissingDirs returns the parent directories of a path that do not exist, the outermost first.
func MissingDirs(path string) []string {
	var missing []string
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			return missing
		}
		missing = slices.Insert(missing, 0, dir)
	}
}

// RemoveDirs removes the directories that are empty, the innermost first.
func RemoveDirs(folders []string) {
	for _, dir := range slices.Backward(folders) {
		_ = os.Remove(dir)
	}
}

// Same reports whether path is as e describes.
func Same(path string, e Entry) (bool, error) {
	now, _, err := Read(path)
	return now == e, err
}

// SameContent is like Same but ignores owner and mode.
func SameContent(path string, content []byte) bool {
	now, err := os.ReadFile(path)
	return err == nil && bytes.Equal(now, content)
}
