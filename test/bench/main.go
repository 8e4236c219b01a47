// Command bench measures the hub, and fails when it is over one of its limits:
//
//	online     beside a bare httputil.ReverseProxy and the same real apiserver: GET,
//	           LIST, the delay of watch events
//	memory     while three clients read and watch all there is
//	disk       how often it is waited for while pods change
//	offline    the start without a cloud; a LIST beside a server that has its bytes
//	reconnect  of many hubs at once: what reaches the apiserver
//
// Times of single runs say little on a shared machine, so that what is compared is
// asked in turns, and medians of several rounds count.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/cluster"
)

func main() {
	hubBin := pflag.String("hub", "../bin/edgehub", "the edgehub binary, as make build leaves it")
	rounds := pflag.Int("rounds", 5, "how often each measure is taken")
	only := pflag.StringSlice("only", parts, "what is measured")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *hubBin, *rounds, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parts are what --only names.
var parts = []string{"online", "memory", "disk", "offline", "reconnect"} //nolint:gochecknoglobals // a constant

// bench is what the measures need.
type bench struct {
	hubBin     string
	dir        string // for whatever they write
	rounds     int
	cluster    *cluster.Cluster
	apiserver  string               // HOST:PORT
	kubeconfig string               // of the administrator
	client     kubernetes.Interface // straight to the apiserver
	direct     *target              // the same, for watches
	targets    [2]*target           // bare, hub
	edges      int                  // that have been made
	failed     []string             // names of measures
}

func run(ctx context.Context, hubBin string, rounds int, only []string) (err error) {
	for _, part := range only {
		if !slices.Contains(parts, part) {
			return fmt.Errorf("--only=%s: there are %v", part, parts)
		}
	}
	dir, err := os.MkdirTemp("", "edgehub-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{hubBin: hubBin, dir: dir, rounds: rounds}
	if !slices.Equal(only, []string{"reconnect"}) {
		if err := b.startCluster(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	}
	for _, part := range only {
		if err := b.measure(ctx, part); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	if len(b.failed) > 0 {
		return fmt.Errorf("over their limits: %v", b.failed)
	}
	return nil
}

func (b *bench) measure(ctx context.Context, part string) error {
	fmt.Printf("\n%s\n", part)
	switch part {
	case "online":
		return b.online(ctx)
	case "memory":
		return b.memory(ctx)
	case "disk":
		return b.disk(ctx)
	case "offline":
		return b.offline(ctx)
	default:
		return b.reconnect(ctx)
	}
}

// measured is something with a limit.
type measured interface {
	fmt.Stringer
	fails() bool
}

func (b *bench) show(name string, m measured) {
	fmt.Println(m)
	if m.fails() {
		b.failed = append(b.failed, name)
	}
}

// startCluster starts a control plane with pods in it.
func (b *bench) startCluster(ctx context.Context) error {
	c, err := cluster.Start(ctx, cluster.Options{Dir: filepath.Join(b.dir, "cluster"), Log: os.Stderr})
	if err != nil {
		return err
	}
	b.cluster, b.apiserver, b.kubeconfig = c, strings.TrimPrefix(c.ServerURL(), "https://"), c.Kubeconfig()
	config := c.AdminConfig()
	config.ContentType = protobuf
	if b.client, err = kubernetes.NewForConfig(config); err != nil {
		return errors.Join(err, c.Stop())
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return errors.Join(err, c.Stop())
	}
	b.direct = &target{name: "apiserver", url: c.ServerURL(), client: httpClient}
	if err := createPods(ctx, b.client); err != nil {
		return errors.Join(fmt.Errorf("create pods: %w", err), c.Stop())
	}
	return nil
}
