package main

import (
	"context"
	"errors"
	"time"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/test/bench/process"
)

// settle is waited for before each rollout: our controller leaves a node alone that
// it has not seen Ready for NodeSettle, and whatever the last rollout has left to
// be done is done by then.
const settle = rollout.NodeSettle + 5*time.Second

// rolledOut is one rollout.
type rolledOut struct {
	took time.Duration // from the change of the first template until all pods are upgraded

	// managerCPU is what the controller manager used, in both ways.
	managerCPU time.Duration

	// The rest is edgehub-controller's, and zero for the other way.
	cpu      time.Duration
	idle     int64 // bytes, before the rollout
	peak     int64 // bytes, in the whole life of the process
	requests requests
}

func (w *world) rollOutOurs(ctx context.Context) (r *rolledOut, err error) {
	if err := w.useOurs(ctx); err != nil {
		return nil, err
	}
	if err := w.awaitNoticed(ctx); err != nil {
		return nil, err
	}
	c, err := w.startController(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	cpu, idle, _, err := c.usage()
	if err != nil {
		return nil, err
	}
	mark, err := w.audit.Mark()
	if err != nil {
		return nil, err
	}
	if r, err = w.rollOut(ctx); err != nil {
		return nil, err
	}
	r.idle = idle
	// What it says when it is done counts too.
	if err := pause(ctx, time.Second); err != nil {
		return nil, err
	}
	made, err := w.audit.Since(mark)
	if err != nil {
		return nil, err
	}
	r.requests = count(made)
	r.cpu, _, r.peak, err = c.usage()
	r.cpu -= cpu
	return r, err
}

func (w *world) rollOutNative(ctx context.Context) (*rolledOut, error) {
	if err := w.useNative(ctx); err != nil {
		return nil, err
	}
	if err := w.awaitNoticed(ctx); err != nil {
		return nil, err
	}
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	return w.rollOut(ctx)
}

// rollOut changes the templates and waits until all pods are of them.
func (w *world) rollOut(ctx context.Context) (*rolledOut, error) {
	manager := w.cluster.ControllerManager().PID()
	before, err := process.CPU(manager)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := w.changeTemplate(ctx); err != nil {
		return nil, err
	}
	if err := w.awaitPods(ctx); err != nil {
		return nil, err
	}
	r := &rolledOut{took: time.Since(began)}
	after, err := process.CPU(manager)
	r.managerCPU = after - before
	return r, err
}
