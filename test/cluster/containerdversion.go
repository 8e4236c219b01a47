package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// ContainerdVersion is a line of releases of containerd.
type ContainerdVersion string

const (
	// ContainerdInstalled is the one that is in PATH: 1.6, on Debian 12.
	ContainerdInstalled ContainerdVersion = ""
	// Containerd17 is built, once per machine, into os.UserCacheDir()/edgehub, which
	// takes about a minute.
	Containerd17 ContainerdVersion = "1.7"
	// Containerd2 is built in the same way.
	Containerd2 ContainerdVersion = "2"
)

// containerdRecipes make a daemon and its shim, in one folder.
var containerdRecipes = map[ContainerdVersion]recipe{
	Containerd17: containerdRecipe("containerd17", "github.com/containerd/containerd"),
	Containerd2:  containerdRecipe("containerd2", "github.com/containerd/containerd/v2"),
}

func containerdRecipe(folder, module string) recipe {
	return recipe{
		title:    "containerd",
		name:     "containerd",
		folder:   folder,
		module:   module,
		took:     "a minute on two cores",
		programs: []string{module + "/cmd/containerd", module + "/cmd/containerd-shim-runc-v2"},
		flags: func(version string) []string {
			return []string{
				// Snapshotters that tests do not use, two of which need cgo.
				"-tags", "no_btrfs,no_devmapper,no_zfs,no_aufs",
				"-trimpath", "-ldflags", "-s -w -X " + module + "/version.Version=" + version,
			}
		},
	}
}

// BuildContainerd builds a version of containerd unless the user's cache folder has
// it already, and returns the folder with its programs; "" for the one that is
// installed.
func BuildContainerd(ctx context.Context, version ContainerdVersion, log io.Writer) (string, error) {
	program, err := findContainerd(ctx, version, newProgress(log))
	return program.folder, err
}

// containerdProgram is the programs of one version.
type containerdProgram struct {
	folder string // "": those in PATH
	config string // the template of its configuration
}

func findContainerd(ctx context.Context, version ContainerdVersion, log *progress) (containerdProgram, error) {
	if version == ContainerdInstalled {
		return containerdProgram{config: containerdConfig2}, nil
	}
	recipe, ok := containerdRecipes[version]
	if !ok {
		return containerdProgram{}, fmt.Errorf("find containerd: there is no version %q here", version)
	}
	folder, err := recipe.build(ctx, log)
	if err != nil {
		return containerdProgram{}, err
	}
	if version == Containerd17 {
		return containerdProgram{folder: folder, config: containerdConfig2}, nil
	}
	return containerdProgram{folder: folder, config: containerdConfig3}, nil
}

// command runs the daemon, which looks for its shim in PATH.
func (p containerdProgram) command(configFile string) *exec.Cmd {
	cmd := command(filepath.Join(p.folder, "containerd"), "--config="+configFile)
	if p.folder != "" {
		cmd.Env = append(os.Environ(), "PATH="+p.folder+":"+os.Getenv("PATH"))
	}
	return cmd
}
