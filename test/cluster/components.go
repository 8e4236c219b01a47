package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// components finds the Kubernetes programs: either one binary that is told by
// its first argument which of them to be, or a folder with one binary for each.
type components struct {
	path   string
	folder bool
}

// findComponents takes what the user named, or builds the binary.
func findComponents(ctx context.Context, named string, log *progress) (components, error) {
	if named == "" {
		binary, err := kubernetesRecipe.build(ctx, log)
		return components{path: binary}, err
	}
	named, err := filepath.Abs(named) // nodes have another working folder
	if err != nil {
		return components{}, fmt.Errorf("find the Kubernetes binaries: %w", err)
	}
	info, err := os.Stat(named)
	if err != nil {
		return components{}, fmt.Errorf("find the Kubernetes binaries: %w", err)
	}
	c := components{path: named, folder: info.IsDir()}
	if !c.folder {
		return c, nil
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"} {
		if _, err := exec.LookPath(filepath.Join(named, name)); err != nil {
			return components{}, fmt.Errorf("find the Kubernetes binaries: %w", err)
		}
	}
	return c, nil
}

// command is the component's command line.
func (c components) command(component string, args ...string) *exec.Cmd {
	if c.folder {
		return command(filepath.Join(c.path, component), args...)
	}
	return command(c.path, append([]string{component}, args...)...)
}

// command describes a process of the cluster.
func command(program string, args ...string) *exec.Cmd {
	return exec.Command(program, args...) //nolint:noctx // it lives until the cluster is stopped
}
