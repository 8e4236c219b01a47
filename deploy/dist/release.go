package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// programs are what a release is made of.
var programs = []string{"edgehub", "edgehub-controller", "edgehubctl", "kubectl-edgehub"}

// release is one version of all programs, for all platforms that are in its folder.
type release struct {
	out      string // folder; has linux-ARCHITECTURE/PROGRAM before everything else
	sources  string // folder with LICENSE and README.md
	version  string
	revision string
	date     time.Time
}

// pack makes all that is in the release besides the programs. What an earlier call has
// left in its folder has to be gone.
func (r release) pack() error {
	architectures, err := r.architectures()
	if err != nil {
		return fmt.Errorf("find the built programs: %w", err)
	}
	var parts errgroup.Group // the order makes no difference: each writes files of its own
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
	folders, err := filepath.Glob(r.program("*", ""))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, folder := range folders {
		_, architecture, _ := strings.Cut(filepath.Base(folder), "-")
		all = append(all, architecture)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no folder linux-ARCHITECTURE", r.out)
	}
	slices.Sort(all)
	return all, nil
}

// program is where the built program is; its folder, where it has no name.
func (r release) program(architecture, name string) string {
	return filepath.Join(r.out, "linux-"+architecture, name)
}

// write makes a file that everybody may read, whatever the umask.
func write(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return err
	}
	return os.Chmod(file, 0o644)
}
