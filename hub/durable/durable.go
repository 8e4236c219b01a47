// Package durable writes small files that have to survive a crash.
package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write replaces the file by one with data, readable by the owner alone. Its folder has
// to be there. The rename is the commit point: whatever crash comes, the file has the
// old contents or the new, and once Write has returned, the new.
func Write(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone after the rename
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(file))
}

// Remove removes the file, if it is there.
func Remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncFolder(filepath.Dir(file))
}

func syncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
