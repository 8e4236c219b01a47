package kubeadm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func since(began time.Time) string {
	return time.Since(began).Round(100 * time.Millisecond).String()
}

// eventually waits until check returns nil. It says what came true and how long that took, if
// there is somebody to say it to.
func (c *Cluster) eventually(ctx context.Context, say Say, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	var last error // the check's last that the time's end did not cause
	for {
		err := check(ctx)
		if err == nil {
			if say != nil {
				say("%s     # %s", what, since(began))
			}
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %s: %w", since(began), what, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// sinceKubelet is the time since kubelet's start.
func (c *Cluster) sinceKubelet(ctx context.Context) (time.Duration, error) {
	out, err := c.machines[edge].Run(ctx, "systemctl", "show", "kubelet.service", "--property=ExecMainStartTimestampMonotonic", "--value")
	if err != nil {
		return 0, err
	}
	started, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64) // µs
	if err != nil {
		return 0, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, err
	}
	return time.Duration(now.Nano()) - time.Duration(started)*time.Microsecond, nil
}
