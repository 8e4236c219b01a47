package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// LogOptions are what to show of a log.
type LogOptions struct {
	// Container is its name; empty: the default one, or the only one.
	Container string
	// Tail is how many lines to begin with, from the end; negative: all.
	Tail int64
	// Since leaves out what was written earlier; zero: nothing.
	Since time.Time
	// Previous shows the newest container that has ended, such as the one that has crashed.
	Previous bool
	// Follow goes on until ctx is done or the pod has left the node, across restarts.
	Follow bool
	// Notes gets lines for people: restarts, and what was left out.
	Notes io.Writer
}

// Logs writes what a container wrote to out, stdout and stderr as they came, byte for byte. What
// kubelet has rotated away before is not shown. The end of ctx is no error with Follow.
func (n *Node) Logs(ctx context.Context, pod types.NamespacedName, o LogOptions, out io.Writer) error {
	a, err := n.find(ctx, pod, o.Container)
	if err != nil {
		return err
	}
	shown := a.runs[0]
	if o.Previous {
		i := slices.IndexFunc(a.runs, func(c *runtimeapi.Container) bool { return c.State == runtimeapi.ContainerState_CONTAINER_EXITED })
		if i < 0 {
			return cli.Errorf(cli.NotNow, "%s has no previous run on this node: it has not restarted, or kubelet has removed what was left", a)
		}
		shown = a.runs[i]
	}
	log, err := n.logOf(ctx, shown.Id)
	if err != nil {
		return missing(a, err)
	}
	defer func() {
		log.close()
		if log.strange > 0 {
			fmt.Fprintf(o.Notes, "Left out: lines of the log that are not in the format of CRI: %d\n", log.strange)
		}
	}()
	log.since = o.Since
	if o.Tail >= 0 {
		if err := log.skipTo(o.Tail); err != nil {
			return err
		}
	}
	if !o.Follow || o.Previous {
		return log.copy(out)
	}
	return n.follow(ctx, follower{app: a, shown: shown, log: log, out: out, notes: o.Notes})
}

// logOf opens the log of a container. The error is fs.ErrNotExist as long as there is none.
func (n *Node) logOf(ctx context.Context, id string) (*logFile, error) {
	s, err := n.status(ctx, id)
	switch {
	case err != nil:
		return nil, asked("look for the log", err)
	case s.GetLogPath() == "":
		return nil, fs.ErrNotExist
	case !filepath.IsAbs(s.LogPath):
		return nil, fmt.Errorf("containerd names no path of a log, but %q", s.LogPath)
	}
	return openLog(s.LogPath)
}

func missing(a app, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return cli.Errorf(cli.NotNow, "%s has no log on this node: it has not started yet, or kubelet has removed it", a)
	}
	return err
}

// follower is a log that is followed from one container of an app to the next.
type follower struct {
	app
	shown *runtimeapi.Container
	log   *logFile
	out   io.Writer
	notes io.Writer
}

// follow copies what comes until ctx is done or the pod is gone. A container's state is read before
// its log: what it wrote before it ended is then in the log.
func (n *Node) follow(ctx context.Context, f follower) error {
	for ctx.Err() == nil {
		s, err := n.status(ctx, f.shown.Id)
		ended := err == nil && (s == nil || s.State == runtimeapi.ContainerState_CONTAINER_EXITED)
		if err == nil || away(err) {
			err = f.log.copy(f.out)
		}
		var gone bool
		if err == nil && ended {
			gone, err = n.next(ctx, &f)
		}
		switch {
		case ctx.Err() != nil || away(err): // containerd's restart ends no container
		case err != nil:
			return err
		case gone:
			fmt.Fprintf(f.notes, "Pod %s has left this node\n", f.pod)
			return nil
		}
		cli.Pause(ctx, n.pace)
	}
	return nil
}

// next goes on with the container that followed, once there is one with a log.
func (n *Node) next(ctx context.Context, f *follower) (gone bool, err error) {
	c, gone, err := n.successor(ctx, f.app, f.shown)
	if err != nil || c == nil {
		return gone, err
	}
	log, err := n.logOf(ctx, c.Id)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it is being started
	}
	if err != nil {
		return false, err
	}
	f.log.goOnIn(log)
	f.shown = c
	fmt.Fprintf(f.notes, "%s has started again (restart %d)\n", title(f.app), attempt(c))
	return false, nil
}

// title is a at the beginning of a line.
func title(a app) string { return "C" + a.String()[1:] }
