package install

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
)

// cniFolder has the configurations of CNI plugins, of which containerd takes the first.
const cniFolder = "/etc/cni/net.d"

// needsCloud is what a CNI plugin needs the cloud for, by its type. docs/offline.md has more.
var needsCloud = map[string]string{
	"calico":     "Calico with its own IPAM: no pod gets an address without the cloud, so pods do not come back after a reboot",
	"cilium-cni": "Cilium: its agent does not start without the cloud, so pods do not come back after a reboot",
}

// checkCNI warns of a pod network that does not start without the cloud.
func (c *checks) checkCNI(folder string) {
	for _, plugin := range cniPlugins(folder) {
		why := needsCloud[plugin.Type]
		if why != "" && (plugin.Type != "calico" || plugin.IPAM.Type == "calico-ipam") {
			c.warn("the pod network is %s (docs/offline.md#pod-networks)", why)
		}
	}
}

// cniPlugin is a plugin in a configuration.
type cniPlugin struct {
	Type string `json:"type"`
	IPAM struct {
		Type string `json:"type"`
	} `json:"ipam"`
}

// cniPlugins returns the plugins of the configuration that containerd takes, and none if there is none or it cannot
// be read: then pods have no network with the cloud, either.
func cniPlugins(folder string) []cniPlugin {
	entries, _ := os.ReadDir(folder) // in the order of names
	for _, entry := range entries {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(entry.Name())) {
			continue
		}
		var network struct {
			cniPlugin
			Plugins []cniPlugin `json:"plugins"`
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if cmp.Or(err, json.Unmarshal(text, &network)) != nil {
			continue
		}
		return append(network.Plugins, network.cniPlugin)
	}
	return nil
}
