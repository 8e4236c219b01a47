// Package container has the flags of edgehubctl's logs, exec and restart, and carries them out: they
// ask containerd, through package cri, and not the hub.
package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/cri"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// Options are the values of the flags.
type Options struct {
	endpoint string
	name     string
	follow   bool
	previous bool
	tail     int64
	since    time.Duration
	stdin    bool
	tty      bool
}

// Add adds the flags to fs.
func (o *Options) Add(fs *pflag.FlagSet) {
	fs.StringVar(&o.endpoint, "container-runtime-endpoint", cri.DefaultEndpoint, "containerd's socket")
	fs.StringVarP(&o.name, "container", "c", "", "name of the container; empty: the pod's default container, or the only one that has not ended well")
	fs.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes, also of the next container when this one restarts")
	fs.BoolVarP(&o.previous, "previous", "p", false, "of the last container that has ended, such as the one that crashed")
	fs.Int64Var(&o.tail, "tail", -1, "number of lines, from the end; -1: all")
	fs.DurationVar(&o.since, "since", 0, "only what was written within this time, such as 10m; 0: all")
	fs.BoolVarP(&o.stdin, "stdin", "i", false, "pass stdin on to the command")
	fs.BoolVarP(&o.tty, "tty", "t", false, "give the command this terminal; needs -i")
}

// Check reports flags that do not go together.
func (o *Options) Check() error {
	switch {
	case o.follow && o.previous:
		return errors.New("--follow waits for what comes, and nothing comes of a previous container: leave one out")
	case o.tail < -1:
		return fmt.Errorf("--tail=%d: want a number of lines, or -1 for all", o.tail)
	case o.since < 0:
		return fmt.Errorf("--since=%v: want a duration such as 10m", o.since)
	case o.tty && !o.stdin:
		return errors.New("--tty needs --stdin: write -it")
	case o.tty && (!term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd()))):
		return errors.New("--tty needs a terminal, and stdin or stdout is none: write -i instead of -it")
	}
	return nil
}

// Call is what to do with which pod.
type Call struct {
	Pod types.NamespacedName
	// Command is what Exec runs.
	Command []string
	// Pods returns the pods of this node, for Restart.
	Pods func(context.Context) ([]*corev1.Pod, error)
	// Force has Restart go on where Pods fails.
	Force bool
	// NoWait has Restart not wait for the new container.
	NoWait   bool
	Out, Err io.Writer
	// Pace is the time between two looks at what may have changed.
	Pace time.Duration
}

func (o *Options) onNode(c Call, f func(*cri.Node) error) error {
	node, err := cri.Open(o.endpoint, c.Pace)
	if err != nil {
		return err
	}
	return errors.Join(f(node), node.Close())
}

// Logs prints the log of a container to c.Out, as it is unless that is a terminal.
func (o *Options) Logs(ctx context.Context, c Call) error {
	l := cri.LogOptions{Container: o.name, Tail: o.tail, Previous: o.previous, Follow: o.follow, Notes: c.Err}
	if o.since > 0 {
		l.Since = time.Now().Add(-o.since)
	}
	return o.onNode(c, func(node *cri.Node) error { return node.Logs(ctx, c.Pod, l, cli.Foreign(c.Out)) })
}

// Exec runs c.Command with this program's stdin if it is wanted.
func (o *Options) Exec(ctx context.Context, c Call) error {
	e := cri.ExecOptions{Container: o.name, Command: c.Command, Stdout: cli.Foreign(c.Out), Stderr: cli.Foreign(c.Err)}
	if o.stdin {
		e.Stdin = os.Stdin
	}
	if o.tty { // a program on a terminal sends it commands; whoever asks for -t wants them
		e.Terminal, e.Stdout = os.Stdin, os.Stdout
	}
	return o.onNode(c, func(node *cri.Node) error { return node.Exec(ctx, c.Pod, e) })
}

// Restart restarts a container, unless nothing would start it again.
func (o *Options) Restart(ctx context.Context, c Call) error {
	policy := func(ctx context.Context, uid types.UID, name string) (corev1.RestartPolicy, error) {
		pods, err := c.Pods(ctx)
		if err != nil {
			return "", err
		}
		return policyOf(pods, c.Pod, uid, name)
	}
	return o.onNode(c, func(node *cri.Node) error {
		return node.Restart(ctx, c.Pod, cri.RestartOptions{Container: o.name, Policy: policy, Force: c.Force, NoWait: c.NoWait, Notes: c.Out})
	})
}
