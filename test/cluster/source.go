package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// sourceFolder is where this package's sources are: the programs that run in
// the cluster are built from there. A binary that was built with -trimpath does
// not know; it looks for the repository around where it is and where it runs.
func sourceFolder() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && isSource(filepath.Dir(file)) {
		return filepath.Dir(file), nil
	}
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the sources of the test cluster: %w", err)
	}
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the sources of the test cluster: %w", err)
	}
	for _, start := range []string{here, filepath.Dir(program)} {
		for folder := start; ; folder = filepath.Dir(folder) {
			if found := filepath.Join(folder, "test", "cluster"); isSource(found) {
				return found, nil
			}
			if folder == filepath.Dir(folder) {
				break
			}
		}
	}
	return "", errors.New("find the sources of the test cluster: neither this program nor its working folder is in the repository of edgehub")
}

func isSource(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "kubernetes", "main.go"))
	return err == nil && filepath.IsAbs(folder)
}

// goOutput runs a go command and puts what it complains about into the error.
func goOutput(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
