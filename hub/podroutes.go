package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/hub/podroute"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// routesTimeout bounds how long GET /debug/cache waits for the list of pods, and then for the
	// container runtime.
	routesTimeout = 3 * time.Second
	// routesMaxAge is how long the routes of pods are answered again, however many ask for them.
	routesMaxAge = time.Second
)

// podRoutes finds out which pods use the hub. The zero value is ready for use, also by many goroutines.
type podRoutes struct {
	mu     sync.Mutex // held while the routes are found out, which others wait for
	found  time.Time  // zero: not yet
	routes []api.PodRoute
	err    error
}

// podAccessState returns nil if pods are not led to the hub.
func (h *Hub) podAccessState() *api.PodAccess {
	if h.pods == nil {
		return nil
	}
	state := &api.PodAccess{Addresses: h.config.PodServers(), CACreated: h.pods.issued.Load().created.UTC().Truncate(time.Second)}
	state.ClusterIP = h.clusterIP.state()
	var err error
	if state.Pods, err = h.routes.of(h, routesMaxAge); err != nil {
		state.Unknown = err.Error()
	}
	return state
}

// of returns the routes of the node's pods, which are read-only, as they were maxAge ago or later.
func (p *podRoutes) of(h *Hub, maxAge time.Duration) ([]api.PodRoute, error) {
	if h.upgrades.images.engine == nil {
		return nil, errors.New("--container-runtime-endpoint is empty, and only the container runtime knows which pods use the hub")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found.IsZero() || time.Since(p.found) > maxAge {
		p.routes, p.err = h.findRoutes()
		p.found = time.Now()
	}
	return p.routes, p.err
}

func (h *Hub) findRoutes() ([]api.PodRoute, error) {
	ctx, cancel := context.WithTimeout(context.Background(), routesTimeout)
	defer cancel()
	list, err := h.podList.List(ctx, h.config.NodeName)
	if err != nil {
		return nil, err
	}
	node, err := h.podList.Node(ctx, h.config.NodeName)
	if err != nil {
		return nil, fmt.Errorf("find out kubelet's version: %w", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), routesTimeout)
	defer cancel()
	return podroute.Of(ctx, list.Items, h.upgrades.images.engine, podServers(h.config), node.Status.NodeInfo.KubeletVersion)
}
