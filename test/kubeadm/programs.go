package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// programs are paths on the host.
type programs struct {
	kubernetes string // all components in one
	containerd string // a folder
	addons     cluster.Addons
	own        string // a folder with pause, app and informer
}

// build builds what is not in the user's cache folder, and this repository's programs into a
// folder.
func build(ctx context.Context, folder string, log io.Writer) (programs, error) {
	p := programs{own: folder}
	var errs [3]error
	p.kubernetes, errs[0] = cluster.BuildKubernetes(ctx, log)
	p.containerd, errs[1] = cluster.BuildContainerd(ctx, cluster.Containerd2, log)
	p.addons, errs[2] = cluster.BuildAddons(ctx, log)
	if err := errors.Join(errs[:]...); err != nil {
		return programs{}, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return programs{}, err
	}
	const module = "github.com/edgehub-io/edgehub/test"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", folder+"/",
		module+"/cluster/images/pause", module+"/cluster/images/app", module+"/kubeadm/informer")
	cmd.Dir = sourceFolder()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=auto", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return programs{}, fmt.Errorf("build the pods' programs: %w\n%s", err, out)
	}
	return p, nil
}

// sourceFolder is where this package is: it cannot be used away from its sources.
func sourceFolder() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}
