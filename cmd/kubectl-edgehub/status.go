package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/workload"
)

const (
	// lookPeriod is how often a watch looks again without a change: some states change with
	// time alone, such as that of a new pod.
	lookPeriod = 2 * time.Second
	// drawPause is the least time between two looks: nobody reads faster.
	drawPause = 250 * time.Millisecond
)

// errTimeout is the cause when --timeout has passed.
var errTimeout = errors.New("timed out")

// status shows the status of the workload that words name, or of all.
func (c *call) status(ctx context.Context, words []string) error {
	all := len(words) == 0
	switch err := c.check(); {
	case err != nil:
		return cli.WrongUse("%w", err)
	case !all && c.all:
		return cli.WrongUse("--all-namespaces is for a status without a name")
	case all && (c.watch || c.nodes):
		return cli.WrongUse("--watch and --nodes are about one DaemonSet or StatefulSet: name it, as ds/NAME or sts/NAME")
	}
	var n named
	if !all {
		var err error
		if n, err = parseName(words); err != nil {
			return err
		}
	}
	to, err := c.open()
	if err != nil {
		return err
	}
	if all {
		return c.statusOfAll(ctx, to)
	}
	return c.statusOf(ctx, to, n)
}

// statusOf shows one report, or with --watch one after the other until all is done.
func (c *call) statusOf(ctx context.Context, to *cluster, n named) error {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("%w after %v", errTimeout, c.timeout))
		defer cancel()
	}
	src, err := follow(ctx, to, n)
	if err != nil {
		return err
	}
	defer src.close()
	w := &watcher{source: src, cluster: to, lease: leaseCheck{c: to}, show: progress.NewView(c.out, progress.ViewOptions{JSON: c.output != "", Watch: c.watch, Nodes: c.nodes})}
	if c.watch {
		return w.watch(ctx, c.ready)
	}
	r, err := w.look(ctx)
	if err != nil {
		return err
	}
	w.show(r)
	return cli.Exit(r.State.ExitCode())
}

// watcher looks at a source again and again.
type watcher struct {
	source  *source
	cluster *cluster
	lease   leaseCheck
	show    progress.View
}

func (w *watcher) look(ctx context.Context) (*progress.Report, error) {
	o, pods, err := w.source.now()
	if err != nil {
		return nil, err
	}
	return evaluate(ctx, w.cluster, &w.lease, o, pods)
}

// evaluate returns the report of o, and warns if the controller does not run: then it may be of long ago.
func evaluate(ctx context.Context, c *cluster, lease *leaseCheck, o workload.Object, pods []*corev1.Pod) (*progress.Report, error) {
	r, err := progress.Evaluate(o, pods, c.clock.now())
	if err != nil {
		return nil, err
	}
	if r.State != progress.Invalid {
		if warning := lease.warning(ctx, r.Spoke); warning != "" {
			r.Warn(warning)
		}
	}
	return r, nil
}

// watch returns when there is nothing left to wait for, or ctx is done. It waits through a
// pause and a halt, which others may end, but not for somebody to correct annotations.
func (w *watcher) watch(ctx context.Context, readyOnly bool) error {
	for {
		r, err := w.look(ctx)
		if err != nil {
			return err
		}
		w.show(r)
		if code := r.State.ExitCode(); code == cli.Done || r.State == progress.Invalid {
			return cli.Exit(code)
		}
		if readyOnly && r.OnlyNotReadyLeft() {
			return nil
		}
		if err := w.pause(ctx); err != nil {
			return ended(ctx, r, err)
		}
	}
}

// ended returns the result of a watch that err stops before all is done, after the report r.
func ended(ctx context.Context, r *progress.Report, err error) error {
	switch {
	case errors.Is(err, errTimeout):
		return cli.Errorf(r.State.ExitCode(), "%w: %s", err, r.Message)
	case ctx.Err() == nil:
		return err
	}
	return cli.Exit(r.State.ExitCode()) // the person who watched had enough
}

// pause returns when it is time to look again.
func (w *watcher) pause(ctx context.Context) error {
	select {
	case <-w.source.changed:
	case <-time.After(lookPeriod):
	case err := <-w.source.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-time.After(drawPause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
