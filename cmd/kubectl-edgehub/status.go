package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// runStatus shows the status of the workload that words name, or of all.
func runStatus(ctx context.Context, words []string, o *options, s streams) (progress.ExitCode, error) {
	var (
		n   named
		err error
	)
	switch all := len(words) == 0; {
	case !all && o.all:
		err = errors.New("--all-namespaces is for a status without a name")
	case all && (o.watch || o.nodes):
		err = errors.New("--watch and --nodes are about one DaemonSet or StatefulSet: name it, as ds/NAME or sts/NAME")
	case !all:
		n, err = parseName(words)
	}
	if err != nil {
		return progress.ExitFailed, seeHelp(err, "status")
	}
	c, err := o.open()
	if err != nil {
		return progress.ExitFailed, err
	}
	if n == (named{}) {
		return statusOfAll(ctx, c, o, s)
	}
	return statusOf(ctx, c, n, o, s)
}

// statusOf shows one report, or with --watch one after the other until all is done.
func statusOf(ctx context.Context, c *cluster, n named, o *options, s streams) (progress.ExitCode, error) {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("%w after %v", errTimeout, o.timeout))
		defer cancel()
	}
	src, err := follow(ctx, c, n)
	if err != nil {
		return progress.ExitFailed, err
	}
	defer src.close()
	w := &watcher{source: src, cluster: c, lease: leaseCheck{c: c}, show: progress.NewView(s.out, progress.ViewOptions{JSON: o.output != "", Watch: o.watch, Nodes: o.nodes})}
	if !o.watch {
		r, err := w.look(ctx)
		if err != nil {
			return progress.ExitFailed, err
		}
		w.show(r)
		return r.State.ExitCode(), nil
	}
	return w.watch(ctx, o.ready)
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
func (w *watcher) watch(ctx context.Context, readyOnly bool) (progress.ExitCode, error) {
	for {
		r, err := w.look(ctx)
		if err != nil {
			return progress.ExitFailed, err
		}
		w.show(r)
		if code := r.State.ExitCode(); code == progress.ExitDone || r.State == progress.Invalid {
			return code, nil
		}
		if readyOnly && r.OnlyNotReadyLeft() {
			return progress.ExitDone, nil
		}
		if err := w.pause(ctx); err != nil {
			return ended(ctx, r, err)
		}
	}
}

// ended returns the result of a watch that err stops before all is done, after the report r.
func ended(ctx context.Context, r *progress.Report, err error) (progress.ExitCode, error) {
	switch {
	case errors.Is(err, errTimeout):
		return r.State.ExitCode(), fmt.Errorf("%w: %s", err, r.Message)
	case ctx.Err() == nil:
		return progress.ExitFailed, err
	}
	return r.State.ExitCode(), nil // the person who watched had enough
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
