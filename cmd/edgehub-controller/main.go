// Command edgehub-controller carries out, in the cloud, the update strategies
// that DaemonSets opt into. See package controller for what it does.
//
// Several replicas may run: a lease decides which one works. Each serves metrics and health
// probes.
package main

import (
	"context"
	"embed"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller"
)

//go:embed help
var help embed.FS

func main() { os.Exit(cli.Main(name, run)) }

// run works until ctx is done, and returns nil then. It returns an error when it cannot start, when it loses the lease, or when
// it can no longer serve.
func run(ctx context.Context, args []string) error {
	cfg, err := parse(args)
	if err != nil {
		return &cli.Error{Code: cli.Usage, Err: err}
	}
	log := cfg.log.Logger(os.Stderr)
	kube, err := restConfig(cfg)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(kube)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c, err := controller.New(client, controller.Options{
		Workers: cfg.workers, Namespace: cfg.election.namespace, Autonomy: cfg.fleet, Logger: log, Registerer: registry,
	})
	if err != nil {
		return err
	}
	l, err := newLeadership(cfg.election, kube, registry)
	if err != nil {
		return err
	}
	servers, err := listen(cfg, registry, probes{leadership: l, synced: c.Synced})
	if err != nil {
		return err
	}
	log.Info("edgehub-controller starts", "version", cli.Version(), "apiserver", kube.Host, "leaderElection", cfg.election.enabled)
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range servers {
		g.Go(func() error { return s.serve(ctx) })
	}
	g.Go(func() error { return l.run(ctx, c.Run) })
	return g.Wait()
}

// restConfig sets no timeout: each request has its own, because watches have none.
func restConfig(cfg *config) (*rest.Config, error) {
	load := rest.InClusterConfig
	if cfg.kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", cfg.kubeconfig) }
	}
	kube, err := load()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%q: read credentials: %w", cfg.kubeconfig, err)
	}
	kube.UserAgent = name + "/" + cli.Version()
	kube.QPS, kube.Burst = cfg.qps, cfg.burst
	kube.WarningHandler = rest.NoWarnings{} // of Pod Security, for each dry run of another's pod
	return kube, nil
}
