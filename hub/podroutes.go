package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/podroute"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/nodepods"
)

const (
	// routesTimeout bounds how long GET /debug/cache waits for the Node, and then for the
	// container runtime.
	routesTimeout = 3 * time.Second
	// routesMaxAge is how long the routes of pods are answered again, however many ask for them.
	routesMaxAge = time.Second
)

// podRoutes finds out which pods use the hub. It is safe for concurrent use.
type podRoutes struct {
	config  *config.Config
	pods    *nodepods.Pods
	client  *ota.Pods
	runtime podroute.Runtime // nil: there is none

	mu     sync.Mutex // held while the routes are found out, which others wait for
	found  time.Time  // zero: not yet
	routes []api.PodRoute
	err    error
}

// find returns the routes of the node's pods, which are read-only, as they were maxAge ago or later.
func (p *podRoutes) find(maxAge time.Duration) ([]api.PodRoute, error) {
	if p.runtime == nil {
		return nil, errors.New("--container-runtime-endpoint is empty, and only the container runtime knows which pods use the hub")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found.IsZero() || time.Since(p.found) > maxAge {
		p.routes, p.err = p.look()
		p.found = time.Now()
	}
	return p.routes, p.err
}

// suspects returns the running containers that may distrust the hub and, if there are some, the pods that are known:
// which pod a container is of may be known a little later than that it runs.
func (p *podRoutes) suspects(ctx context.Context) ([]string, error) {
	found, err := podroute.Suspects(ctx, p.runtime, p.config.PodAddresses)
	if len(found) == 0 || err != nil {
		return nil, err
	}
	var pods []string
	for _, pod := range p.pods.All() {
		pods = append(pods, string(pod.UID))
	}
	slices.Sort(pods)
	return append(found, pods...), nil
}

func (p *podRoutes) look() ([]api.PodRoute, error) {
	if !p.pods.Synced() {
		return nil, errors.New("the node's pods are not known yet")
	}
	var pods []corev1.Pod
	for _, pod := range p.pods.All() {
		pods = append(pods, *pod)
	}
	ctx, cancel := context.WithTimeout(context.Background(), routesTimeout)
	defer cancel()
	node, err := p.client.Node(ctx, p.config.NodeName)
	if err != nil {
		return nil, fmt.Errorf("find out kubelet's version: %w", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), routesTimeout)
	defer cancel()
	return podroute.Of(ctx, pods, p.runtime, podServers(p.config), node.Status.NodeInfo.KubeletVersion)
}
