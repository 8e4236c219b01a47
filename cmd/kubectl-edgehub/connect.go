package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// connection describes how to reach the cluster, by kubectl's own flags and KUBECONFIG.
type connection struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func (c *connection) addFlags(fs *pflag.FlagSet) {
	c.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	fs.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "kubeconfig file; empty: the one that kubectl uses")
	clientcmd.BindOverrideFlags(&c.overrides, fs, clientcmd.RecommendedConfigOverrideFlags(""))
}

// cluster is the connection to a cluster.
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
	config.UserAgent = name + "/" + cli.Version()
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

// serverClock returns the time of the apiserver: the times that it is compared with were written
// in the cluster, and the clock of a person's machine may be off. It is exact to a second or
// two and safe for concurrent use.
type serverClock struct {
	ahead atomic.Int64 // of our own clock, in nanoseconds
}

// listen reads the time from the answers of next.
func (c *serverClock) listen(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil { // a proxy in between may leave it out
			c.ahead.Store(int64(time.Until(date)))
		}
		return response, nil
	})
}

// now is the local time until the apiserver has answered once.
func (c *serverClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
