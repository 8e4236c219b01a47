package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// errLostLead is returned when others may have taken the lease. The process then exits, and
// waits for the lease after its restart.
var errLostLead = errors.New("the lease could not be renewed in time, and another replica may have the lead by now; if none has, look at what keeps this one from the apiserver")

// watchdogTimeout is how long after the end of its lease a process may take to notice, before
// /healthz fails. kube-controller-manager has the same.
const watchdogTimeout = 20 * time.Second

// leadership lets one of several replicas work. Without an election, this one always works. It
// is safe for concurrent use; run is called once.
type leadership struct {
	elector  *leaderelection.LeaderElector // nil without an election
	watchdog *leaderelection.HealthzAdaptor
	state    atomic.Int32
	leading  prometheus.Gauge

	// lead is set by run, after the elector is made.
	lead func(context.Context)
}

// States of leadership. waiting is followed by one of the others, which is final.
const (
	waiting int32 = iota
	leading
	stopped
)

// newLeadership makes its own client from kube, so that no burst of other requests delays a
// renewal.
func newLeadership(e election, kube *rest.Config, metrics prometheus.Registerer) (*leadership, error) {
	l := &leadership{
		watchdog: leaderelection.NewLeaderHealthzAdaptor(watchdogTimeout),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "edgehub_controller_leader",
			Help: "1 while this process has the lead and works, 0 while it waits.",
		}),
	}
	if err := metrics.Register(l.leading); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if !e.enabled {
		return l, nil
	}
	lock, err := newLock(e, kube)
	if err != nil {
		return nil, err
	}
	l.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:            name,
		Lock:            lock,
		LeaseDuration:   e.leaseDuration,
		RenewDeadline:   e.renewDeadline,
		RetryPeriod:     e.retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { l.lead(ctx) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("set up leader election: %w", err)
	}
	l.watchdog.SetLeaderElection(l.elector)
	return l, nil
}

func newLock(e election, kube *rest.Config) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this replica for the lease: %w", err)
	}
	// The host's name is for people; the UUID is there because two may run on one host.
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, e.namespace, e.lease, identity, kube, e.renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("make client for the lease: %w", err)
	}
	return lock, nil
}

// run calls work when this process gets the lead, and returns its error. When ctx is done, run
// stops work and then releases the lease, so that the next replica starts after this one has
// ended, and need not wait for the lease to expire.
func (l *leadership) run(ctx context.Context, work func(context.Context) error) error {
	if l.elector == nil {
		return l.work(ctx, work)
	}
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	result := make(chan error, 1) // one result, whether or not anyone waits
	l.lead = func(led context.Context) {
		if !l.state.CompareAndSwap(waiting, leading) {
			return // stopped while it got the lead
		}
		working, stop := context.WithCancel(led) // led ends when the lease is lost
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		result <- l.work(working, work)
		release()
	}
	defer context.AfterFunc(ctx, func() {
		if l.state.CompareAndSwap(waiting, stopped) {
			release()
		}
	})()
	l.elector.Run(electing)
	if l.state.Load() != leading {
		return nil // stopped while it waited
	}
	err := <-result
	if err == nil && ctx.Err() == nil {
		return errLostLead // nothing else ends work without an error
	}
	return err
}

// work calls work, and sets state and metric.
func (l *leadership) work(ctx context.Context, work func(context.Context) error) error {
	l.state.Store(leading)
	l.leading.Set(1)
	defer l.leading.Set(0)
	return work(ctx)
}

// leads reports whether this process has, or had, the lead.
func (l *leadership) leads() bool { return l.state.Load() == leading }

// check fails when the process holds a lease it should have renewed long ago.
func (l *leadership) check(r *http.Request) error { return l.watchdog.Check(r) }
