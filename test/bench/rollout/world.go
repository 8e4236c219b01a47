package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
)

// heartbeat is not that of real nodes: 5,000 leases every 10 s are more load than
// the rollout. The controller manager is configured to be as patient.
const (
	heartbeat   = 5 * time.Minute
	gracePeriod = 20 * time.Minute
)

// parallel is how many requests of the bench itself are under way at once.
const parallel = 32

// world is a cluster with nodes, pods of others, and two DaemonSets.
type world struct {
	options *options
	dir     string
	began   time.Time
	cluster *cluster.Cluster
	config  *rest.Config // the administrator's
	client  *kubernetes.Clientset
	fleet   *fleet.Fleet
	account string // kubeconfig with the rights of deploy/
	audit   *audit.Log

	stopFleet context.CancelFunc
	ended     chan error // one result, of the fleet

	nodes  int // so far
	others int
	images int
}

func newWorld(ctx context.Context, o *options, dir string) (*world, error) {
	w := &world{options: o, dir: dir, began: time.Now()}
	var err error
	if w.audit, err = audit.New(dir, auditRules); err != nil {
		return nil, err
	}
	w.cluster, err = cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(dir, "cluster"), Log: os.Stderr,
		APIServerArgs:         w.audit.Args(),
		ControllerManagerArgs: []string{"--node-monitor-grace-period=" + gracePeriod.String()},
		// The default of 50 pods a second would be all that is measured.
		SchedulerArgs: []string{"--kube-api-qps=5000", "--kube-api-burst=5000"},
	})
	if err != nil {
		return nil, err
	}
	if err := w.prepare(ctx); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

func (w *world) prepare(ctx context.Context) error {
	w.config = w.cluster.AdminConfig()
	w.config.ContentType = "application/vnd.kubernetes.protobuf"
	var err error
	if w.client, err = kubernetes.NewForConfig(w.config); err != nil {
		return err
	}
	if w.account, err = w.installController(ctx); err != nil {
		return err
	}
	w.fleet = fleet.New(w.client, fleet.Options{
		Start: w.options.start, Workers: parallel, Heartbeat: heartbeat, PodSelector: daemonLabel, Dress: dress, Log: os.Stderr,
	})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stopFleet, w.ended = stop, make(chan error, 1)
	go func() { w.ended <- w.fleet.Run(running) }()
	return nil
}

// stop takes everything down.
func (w *world) stop() error {
	var errs []error
	if w.stopFleet != nil {
		w.stopFleet()
		errs = append(errs, <-w.ended)
	}
	return errors.Join(append(errs, w.cluster.Stop())...)
}

// logf logs how far the bench is. The table goes to stdout, this to stderr.
func (w *world) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%7.1fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// patience is how long nothing may change before the bench gives up.
const patience = time.Minute

// await polls until nothing is left, and gives up when there is no progress.
func await(ctx context.Context, what string, left func() (int, error)) error {
	const interval = 100 * time.Millisecond
	last, since := -1, time.Now()
	for {
		n, err := left()
		switch {
		case err != nil:
			return fmt.Errorf("wait until %s: %w", what, err)
		case n == 0:
			return nil
		case n != last:
			last, since = n, time.Now()
		case time.Since(since) > patience:
			return fmt.Errorf("wait until %s: %d to go, and nothing has changed for %v", what, n, patience)
		}
		if err := pause(ctx, interval); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
