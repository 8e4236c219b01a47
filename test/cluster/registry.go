package cluster

import (
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
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
	port, err := freeport.Take()
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

// push makes one image per version of a program, with that version's arguments.
func (c *Cluster) push(ctx context.Context, binary, repository string, versions map[string][]string) error {
	program, err := images.NewProgram(binary, repository)
	if err != nil {
		return err
	}
	for version, args := range versions {
		if err := c.pushVersion(ctx, program, repository, version, args); err != nil {
			return err
		}
	}
	return nil
}

// pushVersion makes one image, with the name of its version in the environment.
func (c *Cluster) pushVersion(ctx context.Context, program *images.Program, repository, version string, args []string, more ...v1.Layer) error {
	image, err := program.Build(args, []string{"APP_VERSION=" + version}, more...)
	if err != nil {
		return err
	}
	return c.registry.Push(ctx, repository, version, image)
}

// Registry is where the nodes' images are, for tests that look at what is pulled, or
// make it fail. Only a cluster with nodes has one.
func (c *Cluster) Registry() *images.Registry { return c.registry }

// PushApp puts a further image of the test app into the registry, under a version
// and in a repository of the caller's choice and with more layers, and returns its
// reference.
func (c *Cluster) PushApp(ctx context.Context, repository, version string, more ...v1.Layer) (string, error) {
	program, err := images.NewProgram(c.programs.app, appRepository)
	if err != nil {
		return "", err
	}
	if err := c.pushVersion(ctx, program, repository, version, nil, more...); err != nil {
		return "", err
	}
	return c.registry.Reference(repository, version), nil
}
