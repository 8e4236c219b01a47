package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"strconv"

	"sigs.k8s.io/yaml"
)

const (
	kubeletPort       = 10250 // the standard port, on the node's own address
	kubeletHealthPort = 10248
)

func (n *Node) kubeletKubeconfig() string { return n.path("kubelet.kubeconfig") }

// newKubelet writes the kubelet's configuration. Its kubeconfig names the hub, and no
// credentials where that lends it the node's: there is no other way from this kubelet to
// the apiserver.
func (n *Node) newKubelet() (*Process, error) {
	authority := n.cluster.control.authority
	serving := identity{name: "system:node:" + n.name, groups: []string{"system:nodes"}, hosts: []string{n.name, n.network.nodeIP}}
	cert, key, err := authority.issue(n.name+"-kubelet-serving", serving)
	if err != nil {
		return nil, err
	}
	way, err := n.wayToHub()
	if err != nil {
		return nil, err
	}
	if err := way.write(n.kubeletKubeconfig()); err != nil {
		return nil, err
	}
	n.kubeletFields = n.kubeletConfig(authority.certFile(), cert, key)
	if n.onTLS() {
		n.kubeletFields["rotateCertificates"] = true
	}
	if err := n.ConfigureKubelet(nil); err != nil {
		return nil, err
	}
	health := "http://" + n.network.loopback + ":" + strconv.Itoa(kubeletHealthPort) + "/healthz"
	return n.newProcess("kubelet", func() *exec.Cmd {
		cmd := n.cluster.components.command("kubelet",
			"--kubeconfig="+n.kubeletKubeconfig(),
			"--config="+n.path("kubelet.yaml"),
			"--root-dir=/var/lib/kubelet",
			"--cert-dir=/var/lib/kubelet/pki",
			"--hostname-override="+n.name,
			"--node-ip="+n.network.nodeIP,
		)
		if !n.cluster.components.folder {
			cmd.Args = cmd.Args[1:] // the process is called kubelet, as on a node
		}
		return cmd
	}, func(ctx context.Context) error { return get(ctx, n.cluster.http, health) }), nil
}

// ConfigureKubelet sets fields of KubeletConfiguration from kubelet's next start on,
// in place of what this package and an earlier call have set them to. nil takes back
// what earlier calls have set.
func (n *Node) ConfigureKubelet(fields map[string]any) error {
	all := maps.Clone(n.kubeletFields)
	maps.Copy(all, fields)
	config, err := yaml.Marshal(all)
	if err != nil {
		return fmt.Errorf("configure kubelet: %w", err)
	}
	return writeFile(n.path("kubelet.yaml"), string(config))
}

func (n *Node) kubeletConfig(caFile, certFile, keyFile string) map[string]any {
	// A test cluster must not begin to evict because a developer's disk is full.
	few := map[string]string{
		"memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
		"imagefs.available": "1%", "imagefs.inodesFree": "1%",
	}
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",

		"address":            n.network.nodeIP,
		"port":               kubeletPort,
		"healthzBindAddress": n.network.loopback,
		"healthzPort":        kubeletHealthPort,
		"tlsCertFile":        certFile,
		"tlsPrivateKeyFile":  keyFile,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"x509":      map[string]any{"clientCAFile": caFile},
			"webhook":   map[string]any{"enabled": true},
		},
		"authorization": map[string]any{"mode": "Webhook"},

		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + cgroupRoot + "/" + n.name,
		"cgroupsPerQOS":            true,
		"enforceNodeAllocatable":   []string{"pods"},
		"failCgroupV1":             false, // this machine may still have version 1
		"failSwapOn":               false,
		"makeIPTablesUtilChains":   false, // nothing of the host's firewall
		"resolvConf":               "",
		"volumePluginDir":          "/var/lib/kubelet/volumeplugins",

		"evictionHard":                few,
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
	}
}

// newHTTPClient is for questions that are asked now and then; it keeps no
// connections.
func newHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}
