package main

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/container"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/cri"
)

// containerCommands are those that ask containerd, and not the hub.
func containerCommands() []command {
	flags := func(more ...string) []string {
		return append([]string{"namespace", "container", "container-runtime-endpoint"}, more...)
	}
	return []command{
		{name: "logs", args: []string{"POD"}, flags: flags("follow", "previous", "tail", "since"), run: onContainer((*container.Options).Logs)},
		{name: "exec", args: []string{"POD"}, flags: flags("stdin", "tty"), run: onContainer((*container.Options).Exec)},
		{name: "restart", args: []string{"POD"}, flags: flags("no-wait", "timeout", "force"), run: onContainer((*container.Options).Restart)},
	}
}

func ofContainer(verb string) bool {
	return slices.ContainsFunc(containerCommands(), func(c command) bool { return c.name == verb })
}

// checkContainer is check for logs, exec and restart. dash is how many words stand before --,
// negative if there is none.
func (c *call) checkContainer(verb string, dash int) error {
	if verb == "exec" && (dash != 2 || len(c.args) < 2) {
		return errors.New("want POD -- COMMAND behind exec, such as shop/web-x7k2p -- ls -l")
	}
	return c.container.Check()
}

// onContainer has f ask the runtime of this node about the pod that the command names.
func onContainer(f func(*container.Options, context.Context, container.Call) error) func(context.Context, *call) error {
	return func(ctx context.Context, c *call) error {
		pod, err := c.pod()
		if err != nil {
			return err
		}
		ctx, cancel := c.limited(ctx)
		defer cancel()
		return endingOf(f(&c.container, ctx, container.Call{
			Pod: types.NamespacedName(pod), Command: c.args[1:], Pods: c.hub.Pods, Force: c.force, NoWait: c.noWait,
			Out: c.out, Err: c.err, Pace: c.pace / 2,
		}))
	}
}

// errSilent is for exit codes that need no words of this program.
var errSilent = errors.New("the command in the container has failed")

// endingOf gives errors of package cri their exit codes. That of a command in a container becomes
// this program's own.
func endingOf(err error) error {
	if exited, ok := errors.AsType[*cri.Exited](err); ok {
		return &ending{exitCode(exited.Code), errSilent}
	}
	if e, ok := errors.AsType[*cri.Error](err); ok {
		codes := map[cri.Kind]exitCode{cri.WrongUse: exitUsage, cri.NotNow: exitNotNow, cri.Undone: exitUndone, cri.Broken: exitBroken, cri.Failed: exitFailed}
		return &ending{codes[e.Kind], err}
	}
	return err
}
