package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/install/machine"
)

const (
	control = "control"
	edge    = "edge"

	// Addresses of the range that is set aside for tests of network devices (RFC 2544).
	bridge     = "edgehub-k8s"
	prefix     = "/24"
	hostIP     = "198.19.252.1"
	controlIP  = "198.19.252.2"
	edgeIP     = "198.19.252.3"
	movedIP    = "198.19.252.4"  // of edge, after a boot at another address
	podNetwork = "10.244.0.0/16" // flannel's default
	serviceIP  = "10.96.0.1"     // of the Service kubernetes, kubeadm's default
)

// Options say what to start.
type Options struct {
	// Dir is an absolute folder for the machines' disks and the programs, made if need be. Stop
	// removes it.
	Dir string
	// Hub is the program edgehub that is installed on the edge node; edgehubctl is beside it.
	Hub string
	// Move gives the edge node another address when it boots without the cloud.
	Move bool
	// Firewall has the edge node refuse what comes in and was not asked for, before the hub is
	// installed.
	Firewall bool
	// Proxy has the edge node's own programs reach the apiserver by a proxy only.
	Proxy bool
	// ClusterIP has the cluster IP of the apiserver lead to the hub as soon as all pods trust it.
	ClusterIP bool
	// Rejoin has both machines leave the cluster at the end, and make another one, with a hub installed.
	Rejoin bool
	// Log is where builds show their progress.
	Log io.Writer
}

// Cluster is what Start has started. Its methods are for one goroutine.
type Cluster struct {
	options  Options
	release  func() error // gives the host back to other clusters
	bridged  bool
	registry *images.Registry
	programs programs
	tags     tags
	machines map[string]*machine.Machine
	client   kubernetes.Interface
	// controller writes as edgehub-controller, which this cluster has not.
	controller kubernetes.Interface
	booted     time.Time // when the edge machine got its power back; zero: before the story has come there
}

// Start boots two machines that have all programs, and nothing of Kubernetes runs on them
// yet. The first start on a host builds Kubernetes, which takes minutes.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{options: o, machines: map[string]*machine.Machine{}}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start machines for kubeadm: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if why := machine.Missing(); why != "" {
		return errors.New(why)
	}
	if err := os.MkdirAll(c.options.Dir, 0o755); err != nil {
		return err
	}
	var err error
	if c.programs, err = build(ctx, filepath.Join(c.options.Dir, "bin"), c.options.Log); err != nil {
		return err
	}
	if c.release, err = cluster.ClaimMachine(ctx, c.options.Dir, c.options.Log); err != nil {
		return err
	}
	if err := machine.AddBridge(ctx, bridge, hostIP+prefix); err != nil {
		return err
	}
	c.bridged = true
	if err := c.serveImages(ctx); err != nil {
		return err
	}
	var boots errgroup.Group
	booted := map[string]**machine.Machine{control: new(*machine.Machine), edge: new(*machine.Machine)}
	for name, m := range booted {
		boots.Go(func() error {
			var err error
			*m, err = c.boot(ctx, name)
			return err
		})
	}
	err = boots.Wait()
	for name, m := range booted {
		if *m != nil {
			c.machines[name] = *m
		}
	}
	return err
}

// Stop ends the machines, and leaves nothing behind.
func (c *Cluster) Stop() error {
	var errs []error
	for _, m := range c.machines {
		errs = append(errs, m.Stop())
	}
	if c.registry != nil {
		errs = append(errs, c.registry.Close())
	}
	if c.bridged {
		errs = append(errs, machine.RemoveBridge(context.Background(), bridge))
	}
	if c.release != nil {
		errs = append(errs, c.release())
	}
	errs = append(errs, os.RemoveAll(c.options.Dir))
	return errors.Join(errs...)
}

// PIDFile has the process id of a machine's first process, as the host counts, in decimal.
// The machine is "control", or "edge".
func PIDFile(dir, machine string) string { return filepath.Join(dir, machine+".pid") }

func (c *Cluster) writePID(name string, m *machine.Machine) error {
	return os.WriteFile(PIDFile(c.options.Dir, name), []byte(strconv.Itoa(m.PID())), 0o644)
}
