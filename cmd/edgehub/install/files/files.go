// Package files writes files and symbolic links so that after a crash there is the old or
// the new, whole, and compares them with what should be there.
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
	"syscall"
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

// Sum is the SHA-256 of content, in hexadecimal.
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

// Write creates, replaces or removes path as e describes, with content if that is a file. The
// rename is the commit point: after a crash there is the old or the new, whole.
func Write(path string, e Entry, content []byte) error {
	if e.Kind == "" {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, syncDir(filepath.Dir(path)))
	}
	fresh := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".edgehub-new")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	write := writeNew
	if e.Kind == KindLink {
		write = func(name string, e Entry, _ []byte) error { return os.Symlink(e.Target, name) }
	}
	if err := write(fresh, e, content); err != nil {
		_ = os.Remove(fresh)
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		_ = os.Remove(fresh)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeNew(name string, e Entry, content []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = errors.Join(f.Chown(e.UID, e.GID), f.Chmod(e.Mode), f.Sync())
	}
	return errors.Join(err, f.Close())
}

func syncDir(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// MissingDirs returns the parent directories of a path that do not exist, the outermost first.
func MissingDirs(path string) []string {
	var missing []string
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			return missing
		}
		missing = append([]string{dir}, missing...)
	}
}

// RemoveDirs removes the directories that are empty, the innermost first.
func RemoveDirs(folders []string) {
	for i := len(folders) - 1; i >= 0; i-- {
		_ = os.Remove(folders[i])
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
