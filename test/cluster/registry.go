package cluster

import (
	"context"
	"maps"
	"slices"

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
	if err := c.push(ctx, pauseRepository, pauseTag, images.Spec{Binary: c.programs.pause, Name: "pause"}); err != nil {
		return err
	}
	for _, version := range slices.Sorted(maps.Keys(appVersions)) {
		err := c.push(ctx, appRepository, version, images.Spec{
			Binary: c.programs.app,
			Name:   "app",
			Args:   appVersions[version],
			Env:    []string{"APP_VERSION=" + version},
		})
		if err != nil {
			return err
		}
	}
	c.log.step("the registry serves at %s", c.registry.Addr())
	return nil
}

func (c *Cluster) push(ctx context.Context, repository, tag string, spec images.Spec) error {
	image, err := images.Build(spec)
	if err != nil {
		return err
	}
	return c.registry.Push(ctx, repository, tag, image)
}
