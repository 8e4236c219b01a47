package cluster

import (
	"context"

	"github.com/edgehub-io/edgehub/test/cluster/images"
)

const (
	pauseRepository = "pause"
	pauseTag        = "1"
	appRepository   = "app"
)

// appVersions are the versions of the test app and the arguments that make them
// what they are.
var appVersions = map[string][]string{
	"v1":      nil,
	"v2":      nil,
	"v3":      nil,
	"broken":  {"--crash"},
	"unready": {"--unready"},
}

// startRegistry serves the test images on a loopback port.
func (c *Cluster) startRegistry(ctx context.Context) error {
	port, err := c.ports.next()
	if err != nil {
		return err
	}
	if c.registry, err = images.Serve(loopback(port)); err != nil {
		return err
	}
	if err := c.push(ctx, c.programs.pause, pauseRepository, map[string][]string{pauseTag: nil}); err != nil {
		return err
	}
	if err := c.push(ctx, c.programs.app, appRepository, appVersions); err != nil {
		return err
	}
	c.log.step("the registry serves at %s", c.registry.Addr())
	return nil
}

// push makes one image per version of a program, with that version's arguments,
// and with its name in the environment.
func (c *Cluster) push(ctx context.Context, binary, repository string, versions map[string][]string) error {
	program, err := images.NewProgram(binary, repository)
	if err != nil {
		return err
	}
	for version, args := range versions {
		image, err := program.Build(args, []string{"APP_VERSION=" + version})
		if err != nil {
			return err
		}
		if err := c.registry.Push(ctx, repository, version, image); err != nil {
			return err
		}
	}
	return nil
}
