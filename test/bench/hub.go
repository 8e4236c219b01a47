package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/internal/metric"
)

// edge is a hub whose cloud can be taken away, and which can be stopped and started
// again with what it has kept.
type edge struct {
	link    *link.Link
	address string // of the proxy port
	api     string // URL
	args    []string
	bin     string
	*target // nil while it does not run
}

// newEdge describes a hub with a way of its own to the apiserver. It has an address of
// its own, and the usual ports there.
func (b *bench) newEdge(apiserver, kubeconfig, dir string) (*edge, error) {
	l, err := link.Listen("127.0.0.1:0", apiserver)
	if err != nil {
		return nil, err
	}
	b.edges++
	ip := fmt.Sprintf("127.77.%d.%d", b.edges/250, 1+b.edges%250)
	return &edge{link: l, bin: b.hubBin, address: ip + ":10261", api: "http://" + ip + ":10267", args: []string{
		"--node-name=bench", "--kubeconfig=" + kubeconfig, "--server-addr=https://" + l.Addr(), "--root-dir=" + filepath.Join(b.dir, dir),
		"--bind-address=" + ip, "--bind-proxy-address=" + ip, "--proxy-port=10261", "--proxy-secure-port=0", "--log-level=error",
	}}, nil
}

// start returns when the hub takes connections. wrap, if any, is a program and its
// arguments that runs the hub.
func (e *edge) start(ctx context.Context, wrap ...string) error {
	line := append(append(wrap, e.bin), e.args...)
	t, err := startTarget(ctx, "hub", e.address, exec.CommandContext(ctx, line[0], line[1:]...))
	e.target = t
	return err
}

func (e *edge) stop() error {
	if e.target == nil {
		return nil
	}
	err := e.target.stop()
	e.target = nil
	return err
}

// close ends hub and link.
func (e *edge) close() error { return errors.Join(e.stop(), e.link.Close()) }

// cut refuses connections and breaks those that are there.
func (e *edge) cut() error {
	err := e.link.Refuse()
	e.link.Reset()
	return err
}

// metric is the sum of one metric over all lines with these labels.
func (e *edge) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	api := *e.target
	api.url = e.api
	text, err := api.read(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum, _, err := metric.Sum(string(text), name, labels...)
	return sum, err
}

// commits is how often the hub has written to its disk.
func (e *edge) commits(ctx context.Context) (float64, error) {
	return e.metric(ctx, "edgehub_cache_commits_total", `result="ok"`)
}

// awaitDisk returns when the hub has written what it has read: there is no commit in
// two of its intervals.
func (e *edge) awaitDisk(ctx context.Context) error {
	last, since := -1.0, time.Now()
	for time.Since(since) < 2200*time.Millisecond {
		now, err := e.commits(ctx)
		if err != nil {
			return err
		}
		if now != last {
			last, since = now, time.Now()
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil { // more often, the answers themselves would keep the hub busy
			return err
		}
	}
	if last < 1 {
		return errors.New("the hub has written nothing")
	}
	return nil
}
