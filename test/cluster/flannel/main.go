// Command flanneld is flannel's agent, made of flannel's packages in the order of its own
// main function, which cannot be built here: it needs a module for one cloud's backend that
// the module proxy does not have. Flags have the names that kube-flannel.yml uses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
	"k8s.io/klog/v2"
)

const (
	annotations  = "flannel.alpha.coreos.com"
	networkFile  = "/etc/kube-flannel/net-conf.json"
	subnetFile   = "/run/flannel/subnet.env"
	resyncPeriod = 5 // seconds, flannel's default
)

func main() {
	ipMasq := flag.Bool("ip-masq", false, "setup IP masquerade rule for traffic destined outside of overlay network")
	kubeSubnetManager := flag.Bool("kube-subnet-mgr", false, "contact the Kubernetes API for subnet assignment; always true")
	klog.InitFlags(nil)
	flag.Parse()
	_ = *kubeSubnetManager
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *ipMasq); err != nil {
		fmt.Fprintln(os.Stderr, "flanneld:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, ipMasq bool) error {
	subnets, err := kube.NewSubnetManager(ctx, "", "", annotations, networkFile, true)
	if err != nil {
		return fmt.Errorf("create the subnet manager: %w", err)
	}
	config, err := subnets.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("read the network's configuration: %w", err)
	}
	family, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return fmt.Errorf("choose an IP family: %w", err)
	}
	external, err := ipmatch.LookupExtIface("", "", "", family, ipmatch.PublicIPOpts{})
	if err != nil {
		return fmt.Errorf("find the interface to other nodes: %w", err)
	}
	chosen, err := backend.NewManager(ctx, subnets, external).GetBackend(config.BackendType)
	if err != nil {
		return fmt.Errorf("create backend %s: %w", config.BackendType, err)
	}
	var running sync.WaitGroup
	network, err := chosen.RegisterNetwork(ctx, &running, config)
	if err != nil {
		return fmt.Errorf("register the network: %w", err)
	}
	rules := &iptables.IPTablesManager{}
	if err := rules.Init(ctx); err != nil {
		return fmt.Errorf("prepare iptables: %w", err)
	}
	if ipMasq {
		var none ip.IP4Net // a new lease has no rules yet, and rules of before a restart are those of now
		if err := rules.SetupAndEnsureMasqRules(ctx, config.Network, none, none,
			config.IPv6Network, ip.IP6Net{}, ip.IP6Net{}, network.Lease(), resyncPeriod, false); err != nil {
			return fmt.Errorf("write masquerading rules: %w", err)
		}
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resyncPeriod)
	if err := subnets.HandleSubnetFile(subnetFile, config, ipMasq, network.Lease().Subnet, network.Lease().IPv6Subnet, network.MTU()); err != nil {
		return fmt.Errorf("write %s: %w", subnetFile, err)
	}
	klog.Infof("wrote %s", subnetFile)
	running.Go(func() { network.Run(ctx) })
	// It only reports to the apiserver that the network is up. flannel goes on without it, too.
	if err := subnets.CompleteLease(ctx, network.Lease(), &running); err != nil && !errors.Is(err, context.Canceled) {
		klog.Errorf("complete the lease: %v", err)
	}
	running.Wait()
	return nil
}
