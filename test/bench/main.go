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
// asked in turns, and medians of several rounds count. With --results, they also go into a
// JSON file, of which test/bench/chart makes the charts and the table in docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/bench/results"
	"github.com/edgehub-io/edgehub/test/cluster"
)

func main() {
	hubBin := pflag.String("hub", "../bin/edgehub", "the edgehub binary, as make build leaves it")
	rounds := pflag.Int("rounds", 5, "how often each measure is taken")
	only := pflag.StringSlice("only", results.Parts(), "what is measured")
	file := pflag.String("results", "", "JSON file to write the results into; parts that are not measured keep what the file has of them")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *hubBin, *file, *rounds, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

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
	overTLS    [2]*target           // the same as kubelet uses them; the hub is the same process
	edges      int                  // that have been made
	part       string               // that is being measured
	rows       []results.Row        // that have been printed
}

func run(ctx context.Context, hubBin, file string, rounds int, only []string) (err error) {
	for _, part := range only {
		if !slices.Contains(results.Parts(), part) {
			return fmt.Errorf("--only=%s: there are %v", part, results.Parts())
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
	if file != "" {
		if err := results.Save(file, b.rows); err != nil {
			return err
		}
	}
	return b.checkLimits()
}

func (b *bench) checkLimits() error {
	var failed []string
	for i := range b.rows {
		if b.rows[i].Fails() {
			failed = append(failed, b.rows[i].Name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("over their limits: %v", failed)
	}
	return nil
}

func (b *bench) measure(ctx context.Context, part string) error {
	b.part = part
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

// show prints a row of the part that is being measured, and keeps it.
func (b *bench) show(row results.Row) {
	row.Part = b.part
	var previous *results.Row
	if len(b.rows) > 0 {
		previous = &b.rows[len(b.rows)-1]
	}
	fmt.Print(results.Heading(&row, previous), &row, "\n")
	b.rows = append(b.rows, row)
}

// showDetail shows a value of the hub that has no limit.
func (b *bench) showDetail(name, unit string, value float64) {
	b.show(results.Row{Name: name, Unit: unit, Value: value})
}

// showPair shows a value without a limit of what the hub is compared with, and the hub's.
func (b *bench) showPair(name, unit string, values [2]float64) {
	b.show(results.Row{Name: name, Unit: unit, Baseline: &values[0], Value: values[1]})
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

// buildBare builds what the hub is measured beside, and returns its path.
func (b *bench) buildBare(ctx context.Context) (string, error) {
	bin := filepath.Join(b.dir, "bare")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "./bench/bare").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the bare proxy: %w: %s", err, out)
	}
	return bin, nil
}
