package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/autonomy"
)

// name is the program's name in its User-Agent and its lease.
const name = controller.Name

// config holds the values of all flags.
type config struct {
	kubeconfig string
	qps        float32
	burst      int

	workers int

	autonomy autonomyConfig
	fleet    *autonomy.Fleet // of autonomy

	metricsAddr string
	probeAddr   string

	election election

	log cli.LogOptions
}

// election configures leader election. Names and defaults are those of Kubernetes' own
// controllers.
type election struct {
	enabled       bool
	namespace     string
	lease         string
	leaseDuration time.Duration
	renewDeadline time.Duration
	retryPeriod   time.Duration
}

// parse parses the command line. Its error names each flag with a wrong value. It returns pflag.ErrHelp after it has printed help,
// or the version.
func parse(args []string) (*config, error) {
	var c config
	if err := cli.ParseAlone(c.flags(), args); err != nil {
		return nil, err
	}
	return &c, c.validate()
}

func (c *config) flags() *pflag.FlagSet {
	fs := cli.NewFlags(name, help)
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "file with the apiserver's address and credentials; empty: those of the pod this runs in")
	fs.Float32Var(&c.qps, "kube-api-qps", 500, "requests a second to the apiserver, over time; a rollout deletes up to 250 pods at once, and the apiserver has limits of its own")
	fs.IntVar(&c.burst, "kube-api-burst", 1000, "requests to the apiserver at once, beyond kube-api-qps")
	fs.IntVar(&c.workers, "workers", controller.DefaultWorkers, "DaemonSets worked on at once")
	c.autonomy.addFlags(fs)
	fs.StringVar(&c.metricsAddr, "metrics-addr", ":10271", "address that serves /metrics")
	fs.StringVar(&c.probeAddr, "health-probe-addr", ":10272", "address that serves /healthz and /readyz; may be the same as metrics-addr")
	fs.BoolVar(&c.election.enabled, "leader-elect", true, "work only while holding a lease, so that several replicas can run")
	fs.StringVar(&c.election.namespace, "leader-elect-resource-namespace", "edgehub-system", "namespace of the lease")
	fs.StringVar(&c.election.lease, "leader-elect-resource-name", name, "name of the lease")
	fs.DurationVar(&c.election.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "how long others wait after the last renewal before they take the lease")
	fs.DurationVar(&c.election.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "how long the leader tries to renew before it gives up")
	fs.DurationVar(&c.election.retryPeriod, "leader-elect-retry-period", 2*time.Second, "time between two tries to take or renew the lease")
	c.log.AddFlags(fs)
	cli.AddVersion(fs)
	return fs
}

func (c *config) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !(c.qps > 0) || math.IsInf(float64(c.qps), 0) {
		wrong("--kube-api-qps=%v: want a number above 0", c.qps)
	}
	if c.burst < 1 {
		wrong("--kube-api-burst=%d: want 1 or more", c.burst)
	}
	if c.workers < 1 {
		wrong("--workers=%d: want 1 or more", c.workers)
	}
	if err := checkAddr(c.metricsAddr); err != nil {
		wrong("--metrics-addr=%q: %w", c.metricsAddr, err)
	}
	if err := checkAddr(c.probeAddr); err != nil {
		wrong("--health-probe-addr=%q: %w", c.probeAddr, err)
	}
	var err error
	c.fleet, err = c.autonomy.fleet()
	return errors.Join(append(errs, err, c.election.validate(), c.log.Validate())...)
}

// validate checks what client-go's elector demands, in terms of flags.
func (e *election) validate() error {
	if !e.enabled {
		return nil
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if e.namespace == "" {
		wrong("--leader-elect-resource-namespace is empty: name the namespace the lease is in, or set --leader-elect=false")
	}
	if e.lease == "" {
		wrong("--leader-elect-resource-name is empty: name the lease, or set --leader-elect=false")
	}
	if e.retryPeriod <= 0 {
		wrong("--leader-elect-retry-period=%v: want more than 0", e.retryPeriod)
	}
	// The elector's own rule: tries are spread by up to 1.2 times the period.
	if spread := e.retryPeriod * 12 / 10; e.renewDeadline <= spread {
		wrong("--leader-elect-renew-deadline=%v: want more than 1.2 times --leader-elect-retry-period, %v", e.renewDeadline, spread)
	}
	if e.leaseDuration <= e.renewDeadline {
		wrong("--leader-elect-lease-duration=%v: want more than --leader-elect-renew-deadline, %v", e.leaseDuration, e.renewDeadline)
	}
	// A Lease holds whole seconds.
	if e.leaseDuration < time.Second {
		wrong("--leader-elect-lease-duration=%v: want 1s or more", e.leaseDuration)
	}
	return errors.Join(errs...)
}

func checkAddr(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("want HOST:PORT or :PORT: %w", err)
	}
	return nil
}
