package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// programs are the small binaries of this module that nodes need.
type programs struct {
	nodeinit string
	pause    string
	app      string
}

// buildPrograms builds them: a second or two, less when the go command's own
// cache has the packages.
func (c *Cluster) buildPrograms(ctx context.Context) (programs, error) {
	source, err := sourceFolder()
	if err != nil {
		return programs{}, err
	}
	folder := c.path("bin")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return programs{}, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", folder+"/",
		"./nodeinit", "./images/pause", "./images/app")
	cmd.Dir = source
	cmd.Env = goEnvironment()
	if _, err := goOutput(cmd); err != nil {
		return programs{}, fmt.Errorf("build the nodes' programs: %w", err)
	}
	return programs{
		nodeinit: c.path("bin", "nodeinit"),
		pause:    c.path("bin", "pause"),
		app:      c.path("bin", "app"),
	}, nil
}
