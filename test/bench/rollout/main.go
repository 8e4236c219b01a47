// Command rollout measures how two DaemonSets are rolled out over thousands of
// nodes by edgehub-controller, and beside it, on the same cluster and with the same
// maximum, by the DaemonSet controller of Kubernetes itself. It fails when ours
// takes longer, asks the apiserver for more, or needs more memory than its limits
// allow.
//
// apiserver, controller manager and scheduler are real and run here. The nodes do
// not exist: package fleet plays their kubelets in this process, which costs two
// cores less than another process with caches of its own would (kwok). Its pods
// are Ready at once, so that what is measured is the control plane at full load.
//
// Sizes are measured from the smallest up, on one cluster that grows.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// options are the flags.
type options struct {
	controller string
	deploy     string
	nodes      []int
	otherPods  int
	rounds     int
	start      time.Duration
	dir        string
}

func main() {
	var o options
	pflag.StringVar(&o.controller, "controller", "../bin/edgehub-controller", "the edgehub-controller binary, as make build leaves it")
	pflag.StringVar(&o.deploy, "deploy", "../deploy", "the folder with the controller's manifests")
	pflag.IntSliceVar(&o.nodes, "nodes", []int{500, 1000, 5000}, "how many nodes, for each measure")
	pflag.IntVar(&o.otherPods, "other-pods", 50000, "pods of others at the largest size; smaller sizes have as many per node")
	pflag.IntVar(&o.rounds, "rounds", 1, "how often each is measured, in turns; the medians count")
	pflag.DurationVar(&o.start, "pod-start", 0, "how long a pod takes to become Ready")
	pflag.StringVar(&o.dir, "dir", "", "where the logs are kept; empty: they are removed")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-rollout:", err)
		os.Exit(1)
	}
}

func (o *options) validate() error {
	slices.Sort(o.nodes)
	switch {
	case len(o.nodes) == 0 || o.nodes[0] < 1:
		return errors.New("--nodes: want numbers above 0")
	case o.otherPods < 0:
		return errors.New("--other-pods: want 0 or more")
	case o.rounds < 1:
		return errors.New("--rounds: want 1 or more")
	}
	return nil
}

func run(ctx context.Context, o options) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "edgehub-bench-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	w, err := newWorld(ctx, &o, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	var all []*result
	for _, n := range o.nodes {
		r, err := w.measure(ctx, n)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
		all = append(all, r)
	}
	return report(os.Stdout, all)
}

// measure brings the cluster to a size, and rolls out in both ways.
func (w *world) measure(ctx context.Context, nodes int) (*result, error) {
	if err := w.grow(ctx, nodes); err != nil {
		return nil, err
	}
	r := &result{nodes: nodes, otherPods: w.others}
	for range w.options.rounds {
		ours, err := w.rollOutOurs(ctx)
		if err != nil {
			return nil, fmt.Errorf("edgehub-controller: %w", err)
		}
		r.ours = append(r.ours, ours)
		w.logf("%d nodes: %v by edgehub-controller, with %d requests, %.0f MB at most and %v of CPU", nodes,
			round(ours.took), ours.requests.total(), float64(ours.peak)/1e6, round(ours.cpu))
		native, err := w.rollOutNative(ctx)
		if err != nil {
			return nil, fmt.Errorf("the DaemonSet controller: %w", err)
		}
		r.native = append(r.native, native)
		w.logf("%d nodes: %v by RollingUpdate", nodes, round(native.took))
	}
	return r, nil
}
