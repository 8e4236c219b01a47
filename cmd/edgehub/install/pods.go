package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/apiserver"
	"github.com/edgehub-io/edgehub/hub/nodeca"
	"github.com/edgehub-io/edgehub/hub/podroute"
	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/proxy/transform"
)

// createPodCA creates the CA that pods verify the hub with, unless it exists. It may sign for the
// addresses of the apiserver's Service, too, which the hub does not know yet when it creates one.
func (p *plan) createPodCA(ctx context.Context, out io.Writer) error {
	if len(p.config.PodAddresses) == 0 {
		return nil
	}
	service, err := p.cloud.APIServerIPs(ctx)
	if err != nil {
		fmt.Fprintf(out, "the hub's certificate does not name the address of the Service default/kubernetes, which pods do not need: %v\n", err)
	}
	_, err = nodeca.Open(p.config.PodCAFile(), nodeca.NamesOf(p.options.NodeName, p.config.PodAddresses, p.config.APIServerNames), service...)
	return err
}

// leadsPods reports whether pods that start after the install use the hub.
func (p *plan) leadsPods() bool {
	return len(p.config.PodAddresses) > 0 && slices.Contains(p.config.Transforms, transform.APIServerService)
}

// listPods lists the node's pods of a route, by the hub's addresses for pods. endpoint is containerd's.
func listPods(ctx context.Context, name string, cloud *apiserver.Client, endpoint string, servers []string, route api.Route) ([]api.PodRoute, error) {
	var hub []netip.AddrPort
	for _, server := range servers {
		one, err := netip.ParseAddrPort(server)
		if err != nil {
			return nil, err
		}
		hub = append(hub, one)
	}
	runtime, err := engine.New(engine.Options{Address: endpoint}) // does not connect
	if err != nil {
		return nil, err
	}
	defer runtime.Close()
	pods, err := cloud.Pods(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", name, err)
	}
	node, err := cloud.Node(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	all, err := podroute.Of(ctx, pods, runtime, hub, node.Status.NodeInfo.KubeletVersion)
	return withRoute(all, route), err
}

// withRoute returns the pods of a route, and those that have the hub's address and use a proxy for it, first those of
// DaemonSets: others need what they do for the node's network. A pod that would use its proxy after a restart, too, is
// to be restarted in order to leave the hub, and not in order to use it.
func withRoute(all []api.PodRoute, route api.Route) []api.PodRoute {
	var first, others []api.PodRoute
	for _, p := range all {
		if p.Route != route && p.Route != api.Proxied {
			continue
		}
		if route == api.ThroughHub && p.Keep == p.Proxy {
			p.Keep = "" // it gets another address
		}
		if strings.HasPrefix(p.Owner, "DaemonSet/") {
			first = append(first, p)
		} else {
			others = append(others, p)
		}
	}
	return append(first, others...)
}

// printRestarts prints a command for each pod that may be restarted, and why others should not be. The commands are for
// a shell, so no text of a pod's author is in them.
func printRestarts(out io.Writer, pods []api.PodRoute) {
	for _, p := range pods {
		if p.Keep == "" {
			fmt.Fprintf(out, "  kubectl delete pod --namespace=%s %s\n", p.Namespace, p.Name)
		}
	}
	for _, p := range pods {
		if p.Keep != "" {
			fmt.Fprintf(out, "  not %s/%s: %s\n", p.Namespace, p.Name, p.Keep)
		}
	}
}

// bypassing lists the pods that bypass the hub, or will once it is installed.
func (p *plan) bypassing(ctx context.Context) ([]api.PodRoute, error) {
	if !p.leadsPods() {
		return nil, nil
	}
	return listPods(ctx, p.options.NodeName, p.cloud, p.endpoint, p.config.PodServers(), api.Bypass)
}

// printPods prints which pods bypass the hub, after an install.
func (p *plan) printPods(ctx context.Context, out io.Writer) {
	list, err := p.bypassing(ctx)
	if err != nil {
		fmt.Fprintf(out, "it is not known which pods bypass the hub until they restart: %v\n", err)
		return
	}
	printBypassing(out, list)
}

func printBypassing(out io.Writer, list []api.PodRoute) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(out, "\npods that started before bypass the hub until they restart. Delete one when the one before is Ready again:")
	printRestarts(out, list)
	fmt.Fprintln(out, "static pods, and pods without a token for the apiserver, need no restart")
}

// checkPods checks that no pod loses the hub's address, which it has from its start to its end.
func (c *checks) checkPods(ctx context.Context, p *plan, earlier *installed) {
	list, err := p.bypassing(ctx)
	p.bypass = list
	if err != nil {
		c.warn("it is not known which pods bypass the hub until they restart: %v", err)
	}
	for _, pod := range list {
		if pod.Proxy != "" { // it would not reach the hub when it has restarted
			c.warn("pod %s/%s: %s", pod.Namespace, pod.Name, pod.Proxy)
		}
	}
	if earlier == nil || !slices.ContainsFunc(earlier.PodServers, func(s string) bool { return !slices.Contains(p.config.PodServers(), s) }) {
		return
	}
	behind, err := podsBehind(ctx, p.options.NodeName, p.cloud, p.endpoint, earlier)
	switch {
	case err != nil && !p.options.Force:
		c.fail("the addresses for pods would change, and it is not known which pods use those of before; --force changes them all the same: %v", err)
	case err != nil:
		c.warn("the addresses for pods change, and it is not known which pods use those of before: %v", err)
	}
	for _, pod := range behind {
		if p.options.Force {
			c.warn("pod %s/%s loses its apiserver, by --force: delete it", pod.Namespace, pod.Name)
		} else {
			c.fail("pod %s/%s reaches the apiserver at %v, which would be gone: keep --dummy-if-ip and --proxy-secure-port, or uninstall, and install again", pod.Namespace, pod.Name, earlier.PodServers)
		}
	}
}

// podsBehind lists the pods that use the hub of an install, and need it until they end.
func podsBehind(ctx context.Context, name string, cloud *apiserver.Client, endpoint string, i *installed) ([]api.PodRoute, error) {
	if len(i.PodServers) == 0 {
		return nil, nil
	}
	if cloud == nil {
		return nil, errors.New("the node's own kubeconfig cannot be used")
	}
	return listPods(ctx, name, cloud, endpoint, i.PodServers, api.ThroughHub)
}
