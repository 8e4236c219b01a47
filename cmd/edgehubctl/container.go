package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/cri"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// containerFlags are those of logs, exec and restart, which ask containerd, and not the hub.
type containerFlags struct {
	endpoint string
	name     string
	follow   bool
	previous bool
	tail     int64
	since    time.Duration
	stdin    bool
	tty      bool
}

func (o *containerFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.endpoint, "container-runtime-endpoint", cri.DefaultEndpoint, "containerd's socket")
	fs.StringVarP(&o.name, "container", "c", "", "name of the container; empty: the pod's default container, or the only one that has not ended well")
	fs.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes, also of the next container when this one restarts")
	fs.BoolVarP(&o.previous, "previous", "p", false, "of the last container that has ended, such as the one that crashed")
	fs.Int64Var(&o.tail, "tail", -1, "number of lines, from the end; -1: all")
	fs.DurationVar(&o.since, "since", 0, "only what was written within this time, such as 10m; 0: all")
	fs.BoolVarP(&o.stdin, "stdin", "i", false, "pass stdin on to the command")
	fs.BoolVarP(&o.tty, "tty", "t", false, "give the command this terminal; needs -i")
}

// onNode has f ask the runtime of this node.
func (c *call) onNode(ctx context.Context, f func(context.Context, *cri.Node) error) error {
	o := &c.container
	switch {
	case o.follow && o.previous:
		return cli.WrongUse("--follow waits for what comes, and nothing comes of a previous container: leave one out")
	case o.tail < -1:
		return cli.WrongUse("--tail=%d: want a number of lines, or -1 for all", o.tail)
	case o.since < 0:
		return cli.WrongUse("--since=%v: want a duration such as 10m", o.since)
	case o.tty && !o.stdin:
		return cli.WrongUse("--tty needs --stdin: write -it")
	case o.tty && (!term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd()))):
		return cli.WrongUse("--tty needs a terminal, and stdin or stdout is none: write -i instead of -it")
	}
	node, err := cri.Open(o.endpoint, c.pace/2)
	if err != nil {
		return err
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	return errors.Join(f(ctx, node), node.Close())
}

// logs prints the log of a container, as it is unless stdout is a terminal.
func logs(ctx context.Context, c *call) error {
	o := &c.container
	shown := cri.LogOptions{Container: o.name, Tail: o.tail, Previous: o.previous, Follow: o.follow, Notes: c.err}
	if o.since > 0 {
		shown.Since = time.Now().Add(-o.since)
	}
	return c.onNode(ctx, func(ctx context.Context, node *cri.Node) error {
		return node.Logs(ctx, c.pod, shown, cli.Foreign(c.out))
	})
}

// exec runs a command in a container, with this program's stdin if it is wanted. The exit code is the command's.
func (c *call) exec(ctx context.Context, words []string) error {
	if c.flags.ArgsLenAtDash() != 2 || len(words) < 2 {
		return cli.WrongUse("want POD -- COMMAND behind exec, such as shop/web-x7k2p -- ls -l")
	}
	c.inPod = words[1:]
	return c.onPod(execInPod)(ctx, words[:1])
}

func execInPod(ctx context.Context, c *call) error {
	e := cri.ExecOptions{Container: c.container.name, Command: c.inPod, Stdout: cli.Foreign(c.out), Stderr: cli.Foreign(c.err)}
	if c.container.stdin {
		e.Stdin = os.Stdin
	}
	if c.container.tty { // a program on a terminal sends it commands; whoever asks for -t wants them
		e.Terminal, e.Stdout = os.Stdin, os.Stdout
	}
	return c.onNode(ctx, func(ctx context.Context, node *cri.Node) error { return node.Exec(ctx, c.pod, e) })
}

// restart restarts a container, unless nothing would start it again.
func restart(ctx context.Context, c *call) error {
	policy := func(ctx context.Context, uid types.UID, name string) (corev1.RestartPolicy, error) {
		pods, err := c.hub.Pods(ctx)
		if err != nil {
			return "", err
		}
		return policyOf(pods, c.pod, uid, name)
	}
	return c.onNode(ctx, func(ctx context.Context, node *cri.Node) error {
		return node.Restart(ctx, c.pod, cri.RestartOptions{Container: c.container.name, Policy: policy, Force: c.force, NoWait: c.noWait, Notes: c.out})
	})
}
