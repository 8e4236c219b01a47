package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
)

const (
	programsPrefix = "programs-"
	// keptPrograms is for how long programs stay that no run has built again: another run may use
	// them.
	keptPrograms = 24 * time.Hour
)

// buildPrograms builds the product's programs, once for all suites, and hands their folder on in
// the environment. The folder's name is a hash of the programs, and they are stamped with no
// version, so that Go's test cache sees a change of them, and nothing else, as a change of that
// variable.
func buildPrograms(ctx context.Context, r *runner) error {
	cache, err := cacheFolder()
	if err != nil {
		return err
	}
	partial, err := os.MkdirTemp(cache, "partial-"+programsPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	build := step{command: []string{"make", "--no-print-directory", "build", "bin=" + partial, "VERSION=v0.0.0-test", "REVISION=unknown"}}
	if err := r.run(ctx, suite{}, build); err != nil {
		return err
	}
	folder, err := keepPrograms(cache, partial)
	if err != nil {
		return err
	}
	r.env = append(r.env, hubproc.ProgramsVariable+"="+folder)
	return removeOldPrograms(cache, time.Now().Add(-keptPrograms))
}

// keepPrograms moves programs to the folder with the name of their content.
func keepPrograms(cache, from string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		fmt.Fprintln(sum, entry.Name())
		_, err = io.Copy(sum, file)
		return err
	})
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, programsPrefix+fmt.Sprintf("%x", sum.Sum(nil))[:12])
	if err := os.Chmod(from, 0o755); err != nil { //nolint:gosec // tests run them as other users, too
		return "", err
	}
	err = os.Rename(from, folder)
	if errors.Is(err, fs.ErrExist) {
		err = os.Chtimes(folder, time.Time{}, time.Now())
	}
	return folder, err
}

func removeOldPrograms(cache string, before time.Time) error {
	folders, err := filepath.Glob(filepath.Join(cache, programsPrefix+"*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		info, err := os.Stat(folder)
		if err == nil && info.ModTime().Before(before) {
			err = os.RemoveAll(folder)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// cacheFolder is what all that is built and logged goes into.
func cacheFolder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	folder := filepath.Join(cache, "edgehub")
	return folder, os.MkdirAll(folder, 0o755)
}
