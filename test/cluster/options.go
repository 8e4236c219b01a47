package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// maxNodes is what the addresses of the nodes have room for: 127.0.0.11 and up.
const maxNodes = 64

// Options describe what to start. The zero value is a control plane without nodes,
// in a fresh folder, built if need be.
type Options struct {
	// Dir is where state and logs go; empty: a fresh folder under os.TempDir().
	Dir string
	// APIServers is the number of kube-apiservers, all on one etcd; 0 is one. The hubs of
	// nodes, and the other components, know the first only: see Cluster.ServerURLs.
	APIServers int
	// Nodes is the number of real kubelets, node1 to nodeN, each behind a hub of
	// its own. With any, root is needed; with none, only the control plane runs.
	Nodes int
	// KubernetesBin is a ready-made binary like the one in ./kubernetes, or a
	// folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
	// kubelet and kubectl. Empty: it is built, once, into os.UserCacheDir()/edgehub.
	KubernetesBin string
	// HubBin is the edgehub binary; required when there are nodes.
	HubBin string
	// HubArgs gives further flags for the hub of a node; one that is given twice
	// counts as given here. nil: none.
	HubArgs func(node string) []string
	// KubeletOnTLS reports whether a node's kubelet comes to the hub's TLS port, with a
	// client certificate of its own that it rotates as soon as it has started, and the hub
	// offers no port without TLS; nil: none does.
	KubeletOnTLS func(node string) bool
	// Containerd returns which containerd a node runs; nil: all run the one that is
	// installed.
	Containerd func(node string) ContainerdVersion
	// ControllerBin is the edgehub-controller binary; empty: none is run.
	ControllerBin string
	// ControllerDeploy is the product's folder deploy, whose rights the controller has then, and
	// those of its admission policies; empty: it is an administrator.
	ControllerDeploy string
	// ControllerArgs, APIServerArgs, ControllerManagerArgs and SchedulerArgs are further flags
	// for these programs; one that is given twice counts as given here.
	ControllerArgs        []string
	APIServerArgs         []string
	ControllerManagerArgs []string
	SchedulerArgs         []string
	// Log receives one line per step with the time since the start; nil:
	// discarded.
	Log io.Writer
}

func (o Options) validate() error {
	var errs []error
	if o.APIServers < 0 {
		errs = append(errs, fmt.Errorf("APIServers is %d; it must not be negative", o.APIServers))
	}
	if o.Nodes < 0 || o.Nodes > maxNodes {
		errs = append(errs, fmt.Errorf("Nodes is %d; it must be between 0 and %d", o.Nodes, maxNodes))
	}
	if o.Nodes > 0 && os.Geteuid() != 0 {
		errs = append(errs, errors.New("real nodes need root, for their containers; without root, set Nodes to 0"))
	}
	if o.Nodes > 0 && o.HubBin == "" {
		errs = append(errs, errors.New("HubBin is empty; with nodes it must name an edgehub binary"))
	}
	for name, binary := range map[string]string{"HubBin": o.HubBin, "ControllerBin": o.ControllerBin} {
		if binary == "" {
			continue
		}
		if _, err := exec.LookPath(binary); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (o Options) kubeletOnTLS(node string) bool { return o.KubeletOnTLS != nil && o.KubeletOnTLS(node) }

func (o Options) containerdOf(node string) ContainerdVersion {
	if o.Containerd == nil {
		return ContainerdInstalled
	}
	return o.Containerd(node)
}
