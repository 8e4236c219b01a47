package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/podroute"
	"github.com/edgehub-io/edgehub/ota/coreclient"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

const (
	// routesTimeout bounds how long GET /debug/cache waits for the list of pods, and then for the
	// container runtime and the pods' connections.
	routesTimeout = 3 * time.Second
	// routesMaxAge is how long the routes of pods are answered again, however many ask for them.
	routesMaxAge = time.Second
)

// podRoutes finds out which pods use the hub. It is safe for concurrent use.
type podRoutes struct {
	core     rest.Interface
	observer podroute.Observer

	mu       sync.Mutex // held while the routes are found out, which others wait for
	found    time.Time  // zero: not yet
	routes   []nodeapi.PodRoute
	err      error
	services []netip.Addr // cluster IPs of the apiservers; nil: not read yet
}

func newPodRoutes(h *Hub, cloud *rest.Config) (*podRoutes, error) {
	core, err := coreclient.New(cloud)
	if err != nil {
		return nil, err
	}
	p := &podRoutes{core: core}
	p.observer.Hub = podServers(h.config)
	p.observer.Led = func(a netip.Addr) bool {
		now := h.clusterIP.current()
		return now != nil && now.InForce && slices.Contains(p.services, a)
	}
	p.observer.Past = func(ctx context.Context) ([]netip.AddrPort, error) { return p.past(ctx, h) }
	return p, nil
}

// podAccessState returns nil if pods are not led to the hub.
func (h *Hub) podAccessState() *nodeapi.PodAccess {
	if h.pods == nil {
		return nil
	}
	state := &nodeapi.PodAccess{Addresses: h.config.PodServers(), CACreated: h.pods.issued.Load().created.UTC().Truncate(time.Second)}
	state.ClusterIP = h.clusterIP.current()
	var err error
	if state.Pods, err = h.routes.of(h, routesMaxAge); err != nil {
		state.Unknown = err.Error()
	}
	return state
}

// of returns the routes of the node's pods, which are read-only, as they were maxAge ago or later.
func (p *podRoutes) of(h *Hub, maxAge time.Duration) ([]nodeapi.PodRoute, error) {
	if h.upgrades.images == nil {
		return nil, errors.New("--container-runtime-endpoint is empty, and only the container runtime knows which pods use the hub")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found.IsZero() || time.Since(p.found) > maxAge {
		p.observer.Containers = h.upgrades.images.engine
		p.routes, p.err = p.find(h)
		p.found = time.Now()
	}
	return p.routes, p.err
}

func (p *podRoutes) find(h *Hub) ([]nodeapi.PodRoute, error) {
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
	return p.observer.Routes(ctx, list.Items, node.Status.NodeInfo.KubeletVersion)
}

// past returns the addresses at which apiservers are reached without the hub: the cluster IPs of their
// Service, and their own.
func (p *podRoutes) past(ctx context.Context, h *Hub) ([]netip.AddrPort, error) {
	if err := p.readServices(ctx, h); err != nil {
		return nil, fmt.Errorf("read the Service default/kubernetes: %w", err)
	}
	var all []netip.AddrPort
	for _, service := range p.services {
		all = append(all, netip.AddrPortFrom(service, 0))
	}
	for _, s := range h.upstream.State().Servers {
		own, err := addressesOf(ctx, s.Address, s.Up)
		if err != nil {
			return nil, fmt.Errorf("look apiserver %s up: %w", s.Address, err)
		}
		all = append(all, own...)
	}
	return all, nil
}

// readServices has the Service read as kubelet does, whose answer names the hub instead: podAccess
// learns what was replaced. What it has read it does not read again, since cluster IPs do not change.
func (p *podRoutes) readServices(ctx context.Context, h *Hub) error {
	if p.services != nil {
		return nil
	}
	service := &corev1.Service{}
	err := p.core.Get().MaxRetries(0).Namespace(metav1.NamespaceDefault).Resource("services").Name("kubernetes").Do(ctx).Into(service)
	if err != nil {
		return err
	}
	all := h.pods.clusterIPs()
	for _, text := range append(service.Spec.ClusterIPs, service.Spec.ClusterIP) {
		if ip, err := netip.ParseAddr(text); err == nil && !slices.Contains(h.config.PodAddresses, ip) {
			all = append(all, ip)
		}
	}
	if len(all) == 0 {
		return errors.New("it has no cluster IP")
	}
	p.services = all
	return nil
}

// addressesOf returns the addresses of HOST:PORT. A name is looked up only while the host can be
// reached, and so DNS.
func addressesOf(ctx context.Context, hostPort string, up bool) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err != nil && !up {
		return nil, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	var all []netip.AddrPort
	for _, ip := range ips {
		all = append(all, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	return all, err
}
