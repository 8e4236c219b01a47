// Package durable replaces and removes small files so that the change survives a crash.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file by one with data that only its owner can read. Its folder must exist. See
// Replace for crashes.
func Write(file string, data []byte) error {
	err := Replace(file, func(fresh string) error {
		f, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// Replace replaces the file, or symbolic link, by the one that create makes at another path in the
// same folder, and syncs to disk. The rename is the commit point: after a crash there is the old file
// or the new one, whole, and the new one if Replace had returned. Two calls for the same file must not
// overlap.
func Replace(file string, create func(fresh string) error) error {
	fresh := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".edgehub-new")
	err := os.Remove(fresh) // a crash may have left it
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err = create(fresh); err == nil {
		err = os.Rename(fresh, file)
	}
	if err != nil {
		_ = os.Remove(fresh)
		return err
	}
	return syncFolder(filepath.Dir(file))
}

// Remove removes the file, if it exists.
func Remove(file string) error {
	err := os.Remove(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncFolder(filepath.Dir(file)))
}

func syncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
