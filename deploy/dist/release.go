package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// programs are those of a release.
var programs = []string{"edgehub", "edgehub-controller", "edgehubctl", "kubectl-edgehub"}

// release is one version of all programs, for all platforms in its folder.
type release struct {
	out      string // folder; has linux-ARCHITECTURE/PROGRAM before anything is packed
	sources  string // folder with LICENSE and README.md
	version  string
	revision string
	date     time.Time
}

// pack makes everything in the release besides the programs. The folder must not have the
// output of an earlier call.
func (r release) pack() error {
	architectures, err := r.architectures()
	if err != nil {
		return fmt.Errorf("find the built programs: %w", err)
	}
	var parts errgroup.Group // each writes its own files
	for _, architecture := range architectures {
		parts.Go(func() error { return r.packPrograms(architecture) })
	}
	for _, kind := range imageKinds {
		parts.Go(func() error {
			if err := r.packImages(kind, architectures); err != nil {
				return fmt.Errorf("pack the image %s: %w", kind.name, err)
			}
			return nil
		})
	}
	if err := parts.Wait(); err != nil {
		return err
	}
	if err := writeSums(r.out); err != nil {
		return fmt.Errorf("write checksums: %w", err)
	}
	return nil
}

func (r release) packPrograms(architecture string) error {
	if err := r.packArchive(architecture); err != nil {
		return fmt.Errorf("pack the archive for %s: %w", architecture, err)
	}
	for _, program := range programs {
		if err := r.describeProgram(architecture, program); err != nil {
			return fmt.Errorf("list what is in %s for %s: %w", program, architecture, err)
		}
	}
	return nil
}

func (r release) architectures() ([]string, error) {
	folders, err := filepath.Glob(r.program("*", "")) // sorted
	if err != nil {
		return nil, err
	}
	if len(folders) == 0 {
		return nil, fmt.Errorf("%s has no folder linux-ARCHITECTURE", r.out)
	}
	var all []string
	for _, folder := range folders {
		all = append(all, strings.TrimPrefix(filepath.Base(folder), "linux-"))
	}
	return all, nil
}

// program returns the path of a built program, or its folder if name is "".
func (r release) program(architecture, name string) string {
	return filepath.Join(r.out, "linux-"+architecture, name)
}

// write writes a file that everybody may read, whatever the umask.
func write(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return err
	}
	return os.Chmod(file, 0o644)
}
