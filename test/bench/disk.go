package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/test/bench/process"
)

const (
	// syncLimit is how often a second the hub may wait for its disk.
	syncLimit = 1.0
	// writingTime is how long updates go on in a round.
	writingTime = 20 * time.Second
)

// disk measures what the hub writes while pods change that a client watches.
func (b *bench) disk(ctx context.Context) error {
	syncs := &bounded{name: fmt.Sprintf("syncs of the disk at %d updates/s", eventsPerSecond), unit: "/s", limit: new(syncLimit)}
	var written, committed []float64
	for i := range b.rounds {
		r, err := b.diskRound(ctx, fmt.Sprint("disk-", i))
		if err != nil {
			return err
		}
		syncs.values = append(syncs.values, r.syncs/r.seconds)
		written, committed = append(written, r.bytes*60/r.seconds/1e6), append(committed, r.commits*60/r.seconds)
	}
	b.show(syncs.row())
	b.showDetail("written a minute", "MB", median(written))
	b.showDetail("commits a minute", "", median(committed))
	return nil
}

type writes struct{ seconds, syncs, commits, bytes float64 }

// diskRound counts with strace the calls that wait for the disk; it costs the hub
// nothing between them.
func (b *bench) diskRound(ctx context.Context, dir string) (w writes, err error) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return w, fmt.Errorf("syncs are counted with strace: %w", err)
	}
	counts := filepath.Join(b.dir, dir+".strace")
	e, err := b.newEdge(b.apiserver, b.kubeconfig, dir)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.start(ctx, strace, "-f", "--seccomp-bpf", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range,msync,syncfs,sync", "-e", "signal=none", "-o", counts); err != nil {
		return w, err
	}
	hub, err := process.Child(e.cmd.Process.Pid)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, syscall.Kill(hub, syscall.SIGKILL)) }() // strace ends with it
	watching, leave := context.WithCancel(ctx)
	defer leave()
	if err := e.follow(watching, "/api/v1/namespaces/"+namespace+"/pods", ""); err != nil {
		return w, err
	}
	if err := e.awaitDisk(ctx); err != nil {
		return w, err
	}
	sum := func(sign float64) error {
		written, err := process.Written(hub)
		if err != nil {
			return err
		}
		n, err := e.commits(ctx)
		if err != nil {
			return err
		}
		traced, err := lines(counts)
		w.bytes, w.commits, w.syncs = w.bytes+sign*float64(written), w.commits+sign*n, w.syncs+sign*float64(traced)
		return err
	}
	if err := sum(-1); err != nil {
		return w, err
	}
	began := time.Now()
	if err := writeEvents(ctx, b.client, int(writingTime.Seconds())*eventsPerSecond); err != nil {
		return w, err
	}
	w.seconds = time.Since(began).Seconds()
	return w, sum(1)
}

var tracedCall = regexp.MustCompile(`(?m)(sync|sync_file_range)\(.*(=|unfinished)`)

// lines is how many calls strace has seen begin.
func lines(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return len(tracedCall.FindAll(text, -1)), nil
}
