package hub

import (
	"context"
	"errors"
	"time"

	"github.com/edgehub-io/edgehub/hub/podroute"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// routesTimeout bounds how long GET /debug/cache waits for the container runtime.
const routesTimeout = 3 * time.Second

// podAccessState returns nil if pods are not led to the hub.
func (h *Hub) podAccessState() *nodeapi.PodAccess {
	if h.pods == nil {
		return nil
	}
	state := &nodeapi.PodAccess{Addresses: h.config.PodServers(), CACreated: h.pods.issued.Load().created.UTC().Truncate(time.Second)}
	var err error
	if state.Pods, err = h.podRoutes(); err != nil {
		state.Unknown = err.Error()
	}
	return state
}

func (h *Hub) podRoutes() ([]nodeapi.PodRoute, error) {
	if h.images == nil {
		return nil, errors.New("--container-runtime-endpoint is empty, and only the container runtime knows which pods use the hub")
	}
	ctx, cancel := context.WithTimeout(context.Background(), routesTimeout)
	defer cancel()
	list, err := h.podList.List(ctx, h.config.NodeName)
	if err != nil {
		return nil, err
	}
	return podroute.Of(ctx, list.Items, h.images.engine, h.config.PodAddresses)
}
