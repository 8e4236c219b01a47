package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/cmd/internal/version"
)

// connection is how to reach the cluster, said with kubectl's own flags, and with
// KUBECONFIG, as there.
type connection struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func (c *connection) addFlags(fs *pflag.FlagSet) {
	c.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	fs.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "kubeconfig file; empty: the one that kubectl uses")
	clientcmd.BindOverrideFlags(&c.overrides, fs, clientcmd.RecommendedConfigOverrideFlags(""))
}

// cluster is a place to ask.
type cluster struct {
	client    kubernetes.Interface
	namespace string // to look in
	clock     *serverClock
}

// open reads the kubeconfig. It connects to nothing yet.
func (c *connection) open() (*cluster, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.UserAgent = name + "/" + version.Get().Version
	config.QPS = -1 // a handful of requests, and one person who waits for them
	config.WarningHandler = rest.NoWarnings{}
	clock := &serverClock{}
	config.Wrap(clock.listen)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &cluster{client: client, namespace: namespace, clock: clock}, nil
}
