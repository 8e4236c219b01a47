package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/edgehub-io/edgehub/test/bench/process"
	"github.com/edgehub-io/edgehub/test/cluster/freeport"
)

const (
	// limit is how much longer than with the bare proxy anything may take.
	limit = 1.25
	// kubeletLimit is that of what all of a node goes through: kubelet's way.
	kubeletLimit = 1.10
	// idleWatches is what a kubelet with a few pods has open, and a little more.
	idleWatches = 30

	getsPerRound  = 300
	listsPerRound = 8
)

func (b *bench) startTargets(ctx context.Context) error {
	c, dir := b.cluster, b.dir
	var addresses [5]string
	for i := range addresses {
		var err error
		if addresses[i], err = freeport.Address(); err != nil {
			return err
		}
	}
	port := func(i int) string { return addresses[i][len("127.0.0.1:"):] }
	bareBin, err := b.buildBare(ctx)
	if err != nil {
		return err
	}
	cert, key, err := c.ClientCert("admin", "system:masters")
	if err != nil {
		return err
	}
	bare := func(address string, more ...string) (*target, error) {
		more = append(more, "--listen="+address, "--server="+c.ServerURL(), "--ca="+c.CAFile(), "--cert="+cert, "--key="+key)
		return startTarget(ctx, "bare", address, exec.CommandContext(ctx, bareBin, more...))
	}
	if b.targets[0], err = bare(addresses[0]); err != nil {
		return err
	}
	b.targets[1], err = startTarget(ctx, "hub", addresses[1], exec.CommandContext(ctx, b.hubBin,
		"--node-name=bench", "--kubeconfig="+c.Kubeconfig(), "--root-dir="+filepath.Join(dir, "hub"), "--log-level=warn",
		"--proxy-port="+port(1), "--proxy-secure-port="+port(2), "--serve-port="+port(3)))
	if err != nil {
		return err
	}
	nodeCert, nodeKey, err := c.ClientCert("system:node:bench", "system:nodes")
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(nodeCert, nodeKey)
	if err != nil {
		return err
	}
	if b.overTLS[0], err = bare(addresses[4], "--tls"); err != nil {
		return err
	}
	hub := *b.targets[1]
	b.overTLS[1] = &hub
	for i, address := range []string{addresses[4], addresses[2]} {
		b.overTLS[i].speakTLS(address, pair)
	}
	return nil
}

// online compares with the bare proxy.
func (b *bench) online(ctx context.Context) (err error) {
	if err := b.startTargets(ctx); err != nil {
		return err
	}
	defer func() {
		for _, t := range append(b.targets[:], b.overTLS[0]) {
			err = errors.Join(err, t.stop())
		}
	}()
	idle, err := b.targets[1].resident()
	if err != nil {
		return err
	}
	b.showDetail("resident, idle", "MB", megabytes(idle))
	anonymous, err := process.Anonymous(b.targets[1].cmd.Process.Pid)
	if err != nil {
		return err
	}
	b.showDetail("resident, idle, without the program's file", "MB", megabytes(anonymous))
	var zipped [2]*target
	for i, t := range b.targets {
		c := *t
		c.gzip, zipped[i] = true, &c
	}
	pod, lists := "/api/v1/namespaces/"+namespace+"/pods/"+podName(1), fmt.Sprintf("LIST %d pods", podCount)
	for _, m := range []struct {
		name, path string
		n          int
		targets    [2]*target
		limit      float64
		show       func(*requested)
	}{
		{"GET pod, p50", pod, getsPerRound, b.targets, limit, func(r *requested) { b.show(r.row()) }},
		{"GET pod as kubelet, over TLS, p50", pod, getsPerRound, b.overTLS, kubeletLimit, func(r *requested) { b.show(r.row()) }},
		{lists + ", p50", podsPath, listsPerRound, b.targets, limit, b.showList},
		{lists + ", gzip, p50", podsPath, listsPerRound, zipped, limit, func(r *requested) { b.show(r.row()); b.showCPU("CPU a LIST, gzip", r) }},
	} {
		r, err := b.requests(ctx, m.name, m.path, m.n, m.targets, m.limit)
		if err != nil {
			return err
		}
		m.show(r)
	}
	for _, n := range []int{1, 10} {
		p50, p99, err := b.watches(ctx, n)
		if err != nil {
			return err
		}
		b.show(p50.row())
		b.show(p99.row())
	}
	resident, err := b.residentWhileWatching(ctx)
	if err != nil {
		return err
	}
	binary, err := os.Stat(b.hubBin)
	if err != nil {
		return err
	}
	b.showDetail(fmt.Sprintf("resident, %d watches after all this", idleWatches), "MB", megabytes(resident))
	b.showDetail("binary", "MB", megabytes(binary.Size()))
	return nil
}

// requested is a measure of requests, with details.
type requested struct {
	*compared
	size int64            // of an answer's body, in bytes
	cpu  [2]time.Duration // a request, of bare and hub
}

// throughput is in MB/s.
func (r *requested) throughput(times []time.Duration) float64 {
	return megabytes(r.size) / median(times).Seconds()
}

// showList shows a LIST and its details.
func (b *bench) showList(list *requested) {
	b.show(list.row())
	b.showPair("throughput", "MB/s", [2]float64{list.throughput(list.bare), list.throughput(list.hub)})
	b.showCPU("CPU a LIST", list)
}

func (b *bench) showCPU(name string, list *requested) {
	b.showPair(name, "ms", [2]float64{milliseconds(list.cpu[0]), milliseconds(list.cpu[1])})
}

// requests compares the median time of n GETs of path.
func (b *bench) requests(ctx context.Context, name, path string, n int, targets [2]*target, limit float64) (*requested, error) {
	r := &requested{compared: &compared{name: name, limit: limit}}
	if _, _, err := alternate(ctx, path, n/10+1, targets); err != nil { // warm up
		return nil, err
	}
	var before [2]time.Duration
	for k, t := range targets {
		var err error
		if before[k], err = t.cpu(); err != nil {
			return nil, err
		}
	}
	for range b.rounds {
		times, size, err := alternate(ctx, path, n, targets)
		if err != nil {
			return nil, err
		}
		r.bare, r.hub, r.size = append(r.bare, median(times[0])), append(r.hub, median(times[1])), size
	}
	for k, t := range targets {
		after, err := t.cpu()
		if err != nil {
			return nil, err
		}
		r.cpu[k] = (after - before[k]) / time.Duration(n*b.rounds)
	}
	return r, nil
}

// watches compares the delay from an update to its event at n watchers, and
// shows how much of it the proxies add.
func (b *bench) watches(ctx context.Context, n int) (p50, p99 *compared, err error) {
	name := fmt.Sprintf("watch event, %d/s, %d watchers", eventsPerSecond, n)
	p50, p99 = &compared{name: name + ", p50", limit: limit}, &compared{name: name + ", p99", limit: limit}
	added := map[float64]*compared{50: {}, 99: {}}
	for range b.rounds {
		d, err := b.watchRound(ctx, n)
		if err != nil {
			return nil, nil, err
		}
		for c, p := range map[*compared]float64{p50: 50, p99: 99} {
			c.bare, c.hub = append(c.bare, percentile(d[0].total, p)), append(c.hub, percentile(d[1].total, p))
			a := added[p]
			a.bare, a.hub = append(a.bare, percentile(d[0].added, p)), append(a.hub, percentile(d[1].added, p))
		}
	}
	for _, p := range []float64{50, 99} {
		b.showPair(fmt.Sprintf("later than a direct watch, %d, p%v", n, p), "ms",
			[2]float64{milliseconds(median(added[p].bare)), milliseconds(median(added[p].hub))})
	}
	return p50, p99, nil
}

func (b *bench) residentWhileWatching(ctx context.Context) (int64, error) {
	ctx, leave := context.WithCancel(ctx) // ends the watches
	defer leave()
	for range idleWatches {
		if _, err := b.targets[1].watchPods(ctx); err != nil {
			return 0, err
		}
	}
	return b.targets[1].resident()
}
