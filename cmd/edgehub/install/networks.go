package install

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
)

// cniFolder has the configurations of CNI plugins, of which the container runtime takes the first.
const cniFolder = "/etc/cni/net.d"

// needsCloud is what a CNI plugin needs the cloud for, by its type. docs/offline.md has more.
var needsCloud = map[string]string{
	"calico":      "Calico with its own IPAM: no pod gets an address without the cloud, so pods do not come back after a reboot",
	"cilium-cni":  "Cilium: its agent does not start without the cloud, so pods do not come back after a reboot",
	"multus":      multus,
	"multus-shim": multus,
}

const multus = "Multus: it writes to each pod, outside of kube-system, what networks it has, so without the cloud no pod starts, and none comes back after a reboot"

// checkCNI warns of a pod network that does not start without the cloud. envs reads variables of running containers.
func (c *checks) checkCNI(ctx context.Context, folder string, envs environments) {
	for _, plugin := range cniPlugins(folder) {
		why := needsCloud[plugin.Type]
		if why != "" && (plugin.Type != "calico" || plugin.IPAM.Type == "calico-ipam") {
			c.warn("the pod network is %s (docs/offline.md#pod-networks)", why)
		}
		if plugin.Type == "calico" && usesTypha(ctx, envs) {
			c.warn("the pod network is Calico with Typha: Felix ends 30 s after Typha is lost, and until the cloud is back no rule or route of a pod changes (docs/offline.md#pod-networks)")
		}
	}
}

// environments reads environment variables of running containers.
type environments interface {
	Environments(ctx context.Context, names ...string) ([]engine.Environment, error)
}

// usesTypha reports whether a Felix of this node gets what it needs from Typha. If the runtime does not say, none
// does, as far as is known.
func usesTypha(ctx context.Context, envs environments) bool {
	const address, service = "FELIX_TYPHAADDR", "FELIX_TYPHAK8SSERVICENAME" // of Calico's own manifests
	all, _ := envs.Environments(ctx, address, service)
	return slices.ContainsFunc(all, func(e engine.Environment) bool {
		return e.Values[address] != "" || !slices.Contains([]string{"", "none"}, e.Values[service])
	})
}

// cniPlugin is a plugin in a configuration.
type cniPlugin struct {
	Type string `json:"type"`
	IPAM struct {
		Type string `json:"type"`
	} `json:"ipam"`
}

// cniNetwork is a configuration: of one plugin, or of several. Multus has other networks' in it, or names one.
type cniNetwork struct {
	cniPlugin
	Name           string       `json:"name"`
	Plugins        []cniPlugin  `json:"plugins"`
	Delegates      []cniNetwork `json:"delegates"`
	ClusterNetwork string       `json:"clusterNetwork"` // its name or its file, as Multus's container sees it

	file string
}

// all returns the plugins, with those of networks within.
func (n *cniNetwork) all() []cniPlugin {
	plugins := append(slices.Clone(n.Plugins), n.cniPlugin)
	for i := range n.Delegates {
		plugins = append(plugins, n.Delegates[i].all()...)
	}
	return plugins
}

// cniPlugins returns the plugins of the configuration that the container runtime takes, and of the one behind Multus. It
// returns none if there is none or it cannot be read: then pods have no network with the cloud, either.
func cniPlugins(folder string) []cniPlugin {
	networks := cniNetworks(folder)
	if len(networks) == 0 {
		return nil
	}
	first, others := &networks[0], networks[1:]
	plugins := first.all()
	if !strings.HasPrefix(first.Type, "multus") || len(first.Delegates) > 0 {
		return plugins
	}
	behind := slices.IndexFunc(others, func(n cniNetwork) bool {
		return n.Name == first.ClusterNetwork || n.file == filepath.Base(first.ClusterNetwork)
	})
	if behind < 0 && len(others) > 0 {
		behind = 0 // which Multus takes if it is told of none
	}
	if behind >= 0 {
		plugins = append(plugins, others[behind].all()...)
	}
	return plugins
}

// cniNetworks returns the configurations that can be read, in the order of their names.
func cniNetworks(folder string) (all []cniNetwork) {
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(entry.Name())) {
			continue
		}
		network := cniNetwork{file: entry.Name()}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if cmp.Or(err, json.Unmarshal(text, &network)) == nil {
			all = append(all, network)
		}
	}
	return all
}

// A mesh is a service mesh whose rules, in a pod's network namespace, lead what the pod sends to a sidecar.
type mesh struct {
	name       string
	containers []string // of a pod in the mesh; one of them is there
	annotation string   // of a pod: ports that are left alone
	loses      string   // what of the pods has no apiserver
	also       string   // what else has to know the port
}

// meshes returns those that are known, with the names that their own injectors give.
func meshes() []mesh {
	return []mesh{
		{
			"Istio", []string{"istio-proxy", "istio-init", "istio-validation"}, "traffic.sidecar.istio.io/excludeOutboundPorts",
			"their init containers, and with outboundTrafficPolicy REGISTRY_ONLY all of them,", "",
		},
		{
			"Linkerd", []string{"linkerd-proxy", "linkerd-init", "linkerd-network-validator"}, "config.linkerd.io/skip-outbound-ports",
			"their init containers, and Linkerd's control plane, whose own rules leave 443 and 6443 alone,", "; its control plane needs the Helm value proxyInit.kubeAPIServerPorts with that port, too",
		},
	}
}

// checkMeshes warns of pods that will not reach the hub at all times, since a service mesh leads what is for it to
// a sidecar.
func (c *checks) checkMeshes(ctx context.Context, p *plan) {
	if !p.leadsPods() {
		return
	}
	pods, err := p.cloud.Pods(ctx, p.options.NodeName)
	if err != nil {
		return // an upgrade without the cloud, or checkOnline has said it
	}
	for _, m := range meshes() {
		if pod, n := m.catches(pods, p.config.ProxySecurePort); n > 0 {
			c.warn("%s", m.problem(pod, n, p.config.ProxySecurePort))
		}
	}
}

// problem says what will not work.
func (m *mesh) problem(pod string, n, port int) string {
	return fmt.Sprintf("pods are in %s (%s; %d in all): their sidecars take what is for the hub's port %d, so %s have no apiserver once they restart, with the cloud, too, unless they have the annotation %s: %q%s (docs/install.md#service-meshes)",
		m.name, pod, n, port, m.loses, m.annotation, strconv.Itoa(port), m.also)
}

// catches returns how many pods are in the mesh whose rules do not leave the port alone, and one of them.
func (m *mesh) catches(pods []corev1.Pod, port int) (first string, n int) {
	for i := range pods {
		pod := &pods[i]
		in := slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
			return slices.Contains(m.containers, c.Name)
		})
		if !in || slices.Contains(strings.Split(strings.ReplaceAll(pod.Annotations[m.annotation], " ", ""), ","), strconv.Itoa(port)) {
			continue
		}
		if n++; first == "" {
			first = pod.Namespace + "/" + pod.Name
		}
	}
	return first, n
}
