package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller"
)

// run works until ctx is done, and returns nil then. It returns an error when it
// cannot start, when it loses the lease, or when it can no longer serve.
func run(ctx context.Context, cfg *config, log *slog.Logger) error {
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
	fleet, err := cfg.autonomy.fleet()
	if err != nil {
		return err
	}
	c, err := controller.New(client, controller.Options{Workers: cfg.workers, Namespace: cfg.election.namespace, Autonomy: fleet, Logger: log, Registerer: registry})
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
