package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
)

const (
	// offlineLimit is how much longer a LIST from the cache may take than the same
	// bytes from memory.
	offlineLimit = 2.0
	// startLimit is the time from the start of a hub without a cloud to the end of the
	// first LIST, in ms.
	startLimit = 500.0
)

var podsPath = "/api/v1/namespaces/" + namespace + "/pods?resourceVersion=0"

// offline takes the cloud away from a hub that has read all pods, and measures how
// soon after its start it answers, and how long the answer takes.
func (b *bench) offline(ctx context.Context) (err error) {
	e, err := b.newEdge(b.apiserver, b.kubeconfig, "offline")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.start(ctx); err != nil {
		return err
	}
	body, err := e.read(ctx, podsPath)
	if err != nil {
		return err
	}
	if err := errors.Join(e.awaitDisk(ctx), e.cut()); err != nil {
		return err
	}
	started := &bounded{name: fmt.Sprintf("start without a cloud to %d pods listed", podCount), unit: "ms", limit: new(startLimit)}
	for range b.rounds {
		if err := e.stop(); err != nil {
			return err
		}
		began := time.Now()
		if err := e.start(ctx); err != nil {
			return err
		}
		if _, size, err := e.timed(ctx, podsPath); err != nil || size < int64(len(body))*9/10 {
			return fmt.Errorf("first LIST of %d bytes, %d online: %w", size, len(body), err)
		}
		started.values = append(started.values, milliseconds(time.Since(began)))
	}
	b.show(started.row())
	return b.offlineList(ctx, e)
}

// offlineList compares with a server that has the hub's answer in memory.
func (b *bench) offlineList(ctx context.Context, e *edge) (err error) {
	body, err := e.read(ctx, podsPath)
	if err != nil {
		return err
	}
	file := filepath.Join(b.dir, "list")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		return err
	}
	bin, err := b.buildBare(ctx)
	if err != nil {
		return err
	}
	address, err := freeport.Address()
	if err != nil {
		return err
	}
	plain, err := startTarget(ctx, "plain", address, exec.CommandContext(ctx, bin, "--listen="+address, "--file="+file))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.stop()) }()
	list, err := b.requests(ctx, fmt.Sprintf("offline LIST %d pods, beside plain bytes", podCount), podsPath, listsPerRound, [2]*target{plain, e.target}, offlineLimit)
	if err != nil {
		return err
	}
	b.showList(list)
	return nil
}
