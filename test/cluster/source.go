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
// the cluster are built from there.
func sourceFolder() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if ok && filepath.IsAbs(file) {
		if _, err := os.Stat(file); err == nil {
			return filepath.Dir(file), nil
		}
	}
	// Built with -trimpath: the module that we are run in knows.
	folder, err := goOutput(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/edgehub-io/edgehub/test/cluster"))
	if err != nil {
		return "", fmt.Errorf("find the sources of the test cluster (run inside the repository's test folder): %w", err)
	}
	if folder == "" {
		return "", errors.New("find the sources of the test cluster: the go command knows no folder for them")
	}
	return folder, nil
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
