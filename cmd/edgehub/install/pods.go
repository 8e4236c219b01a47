package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/apiserver"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/podrestart"
	"github.com/edgehub-io/edgehub/hub/nodeca"
	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/proxy/transform"
)

// nodePods finds and restarts the node's pods.
type nodePods struct {
	podrestart.Node
	engine *engine.Engine
}

// openNodePods does not connect. endpoint is containerd's.
func openNodePods(name string, cloud *apiserver.Client, endpoint string, out io.Writer) (*nodePods, error) {
	runtime, err := engine.New(engine.Options{Address: endpoint})
	if err != nil {
		return nil, err
	}
	return &nodePods{podrestart.Node{Name: name, Cloud: cloud, Runtime: runtime, Out: out}, runtime}, nil
}

func (n *nodePods) close() { n.engine.Close() }

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

// bypassing lists the pods that bypass the hub, or will once it is installed.
func (p *plan) bypassing(ctx context.Context, out io.Writer) ([]podrestart.Pod, error) {
	if !p.leadsPods() {
		return nil, nil
	}
	pods, err := openNodePods(p.options.NodeName, p.cloud, p.endpoint, out)
	if err != nil {
		return nil, err
	}
	defer pods.close()
	servers, err := parseServers(p.config.PodServers())
	if err != nil {
		return nil, err
	}
	return pods.List(ctx, nodeapi.Bypass, servers, &p.options.Restart)
}

// restartPods restarts the pods that were asked for, and prints which others bypass the hub.
func (p *plan) restartPods(ctx context.Context, out io.Writer) error {
	list, err := p.bypassing(ctx, out)
	switch {
	case err != nil && p.options.Restart.Given():
		return fmt.Errorf("edgehub is installed, but no pod was restarted: %w", err)
	case err != nil:
		fmt.Fprintf(out, "it is not known which pods bypass the hub until they restart: %v\n", err)
		return nil
	case len(list) == 0 && p.options.Restart.Given():
		fmt.Fprintln(out, "no pod bypasses the hub: none is restarted")
		return nil
	case len(list) == 0:
		return nil
	}
	printBypassing(out, list)
	if !p.options.Restart.Given() {
		return nil
	}
	if err := p.reachByPods(ctx, out); err != nil {
		return fmt.Errorf("edgehub is installed, but no pod was restarted: %w", err)
	}
	pods, err := openNodePods(p.options.NodeName, p.cloud, p.endpoint, out)
	if err != nil {
		return err
	}
	defer pods.close()
	if err := pods.Restart(ctx, list, p.options.Restart.Timeout); err != nil {
		return fmt.Errorf("edgehub is installed, but not all pods were restarted; the same command again goes on: %w", err)
	}
	fmt.Fprintln(out, "done: the pods that were to be restarted run again, and use the hub")
	return nil
}

func printBypassing(out io.Writer, list []podrestart.Pod) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(out, "\npods that started before, and bypass the hub until they restart:")
	podrestart.Print(out, list)
	fmt.Fprintln(out, "static pods, and pods without a token for the apiserver, need no restart")
}

// checkPods checks that no pod loses the hub's address, which it has from its start to its end.
func (c *checks) checkPods(ctx context.Context, p *plan, earlier *installed) {
	list, err := p.bypassing(ctx, c.out)
	switch p.bypass = list; {
	case err != nil && p.options.Restart.Given():
		c.fail("--restart-pods: %v", err)
	case err != nil:
		c.warn("it is not known which pods bypass the hub until they restart: %v", err)
	}
	for _, pod := range list {
		if pod.Proxy != "" { // it would not reach the hub when it has restarted
			c.warn("pod %s: %s", &pod, pod.Proxy)
		}
	}
	if earlier == nil || !slices.ContainsFunc(earlier.PodServers, func(s string) bool { return !slices.Contains(p.config.PodServers(), s) }) {
		return
	}
	behind, err := podsBehind(ctx, p.options.NodeName, p.cloud, p.endpoint, earlier, &podrestart.Options{})
	switch {
	case err != nil && !p.options.Force:
		c.fail("the addresses for pods would change, and it is not known which pods use those of before; --force changes them all the same: %v", err)
	case err != nil:
		c.warn("the addresses for pods change, and it is not known which pods use those of before: %v", err)
	}
	for _, pod := range behind {
		if p.options.Force {
			c.warn("pod %s loses its apiserver, by --force: delete it", &pod)
		} else {
			c.fail("pod %s reaches the apiserver at %v, which would be gone: keep --dummy-if-ip and --proxy-secure-port, or uninstall with --restart-pods, and install again", &pod, earlier.PodServers)
		}
	}
}

// podsBehind lists the pods that use the hub of an install, and need it until they end.
func podsBehind(ctx context.Context, name string, cloud *apiserver.Client, endpoint string, i *installed, o *podrestart.Options) ([]podrestart.Pod, error) {
	servers, err := parseServers(i.PodServers)
	if err != nil || len(servers) == 0 {
		return nil, err
	}
	if cloud == nil {
		return nil, errors.New("the node's own kubeconfig cannot be used")
	}
	pods, err := openNodePods(name, cloud, endpoint, io.Discard)
	if err != nil {
		return nil, err
	}
	defer pods.close()
	return pods.List(ctx, nodeapi.ThroughHub, servers, o)
}

// parseServers parses PodServers of an install, or of the hub's configuration.
func parseServers(servers []string) (all []netip.AddrPort, err error) {
	for _, server := range servers {
		s, parseErr := netip.ParseAddrPort(server)
		all, err = append(all, s), errors.Join(err, parseErr)
	}
	return all, err
}
