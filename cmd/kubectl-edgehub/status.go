package main

import (
	"context"
	"errors"
	"fmt"
	"time"
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

// status shows one report, or with --watch one after the other until all is done.
func status(ctx context.Context, c *cluster, name string, o *options, s streams) (exitCode, error) {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("%w after %v", errTimeout, o.timeout))
		defer cancel()
	}
	src, err := follow(ctx, c, name)
	if err != nil {
		return exitFailed, err
	}
	defer src.close()
	w := &watcher{source: src, cluster: c, lease: leaseCheck{c: c}, show: viewFor(o, s.out)}
	if !o.watch {
		r, err := w.look(ctx)
		if err != nil {
			return exitFailed, err
		}
		w.show(r)
		return r.State.exitCode(), nil
	}
	return w.watch(ctx, o.ready)
}

// watcher looks at a source again and again.
type watcher struct {
	source  *source
	cluster *cluster
	lease   leaseCheck
	show    view
}

func (w *watcher) look(ctx context.Context) (*report, error) {
	o, err := w.source.now()
	if err != nil {
		return nil, err
	}
	r, err := evaluate(o, w.cluster.clock.now())
	if err != nil {
		return nil, err
	}
	if code := r.State.exitCode(); r.Revision != "" && code != exitDone {
		if warning := w.lease.warning(ctx, r.spoke); warning != "" {
			r.warn(warning)
		}
	}
	return r, nil
}

// watch returns when there is nothing left to wait for, or ctx is done. It waits through a
// pause and a halt, which others may end, but not for somebody to correct annotations.
func (w *watcher) watch(ctx context.Context, readyOnly bool) (exitCode, error) {
	for {
		r, err := w.look(ctx)
		if err != nil {
			return exitFailed, err
		}
		w.show(r)
		if code := r.State.exitCode(); code == exitDone || r.State == invalid {
			return code, nil
		}
		if readyOnly && r.onlyNotReadyLeft() {
			return exitDone, nil
		}
		if err := w.pause(ctx); err != nil {
			return r.ended(ctx, err)
		}
	}
}

// ended returns the result of a watch that err stops before all is done.
func (r *report) ended(ctx context.Context, err error) (exitCode, error) {
	switch {
	case errors.Is(err, errTimeout):
		return r.State.exitCode(), fmt.Errorf("%w: %s", err, r.Message)
	case ctx.Err() == nil:
		return exitFailed, err
	}
	return r.State.exitCode(), nil // the person who watched had enough
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
