package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// cleanupTimeout bounds the wait for the kernel to let go of what processes
// that have ended were using.
const cleanupTimeout = 30 * time.Second

// prepareNodes does what nodes need and the control plane is not needed for.
func (c *Cluster) prepareNodes(ctx context.Context) error {
	if missing := MissingPackages(); len(missing) > 0 {
		return errMissing(missing)
	}
	c.http = newHTTPClient()
	var err error
	c.machine, err = lockMachine(ctx, nodesLock, c.dir, func(holder string) {
		c.log.step("the cluster in %s has the addresses of the nodes; waiting until it is stopped", holder)
	})
	if err != nil {
		return err
	}
	if c.cgroups, err = findCgroups(); err != nil {
		return err
	}
	if err := c.removeTraces(); err != nil { // of a cluster that crashed
		return err
	}
	if c.programs, err = c.buildPrograms(ctx); err != nil {
		return err
	}
	if err := c.findContainerds(ctx); err != nil {
		return err
	}
	return c.startRegistry(ctx)
}

// findContainerds finds or builds each containerd that a node runs.
func (c *Cluster) findContainerds(ctx context.Context) error {
	c.containerds = map[ContainerdVersion]containerdProgram{}
	for number := range c.options.Nodes {
		version := c.options.containerdOf(nodeName(number + 1))
		if _, ok := c.containerds[version]; ok {
			continue
		}
		program, err := findContainerd(ctx, version, c.log)
		if err != nil {
			return err
		}
		c.containerds[version] = program
	}
	return nil
}

// startNodes starts all nodes at once.
func (c *Cluster) startNodes(ctx context.Context) error {
	for number := range c.options.Nodes {
		node, err := c.newNode(number + 1)
		if node != nil {
			c.nodes = append(c.nodes, node)
		}
		if err != nil {
			return fmt.Errorf("node%d: %w", number+1, err)
		}
	}
	group, together := errgroup.WithContext(ctx)
	for _, node := range c.nodes {
		group.Go(func() error { return node.start(together) })
	}
	return group.Wait()
}

// stopNodes stops what startNodes and prepareNodes have started.
func (c *Cluster) stopNodes() error {
	var errs []error
	for _, node := range c.nodes {
		errs = append(errs, node.stop())
	}
	errs = append(errs, c.removeTraces())
	if c.registry != nil {
		errs = append(errs, c.registry.Close())
	}
	return errors.Join(append(errs, c.machine.release())...)
}

// removeTraces removes what nodes leave in the kernel when their processes have
// ended, or were killed.
func (c *Cluster) removeTraces() error { return removeTraces(c.cgroups) }

func removeTraces(cgroups cgroupTree) error {
	// Not the caller's context: this is for when that has ended, too.
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	return errors.Join(cgroups.remove(ctx), removeBridges())
}
