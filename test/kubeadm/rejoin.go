package kubeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rejoin installs the hub again, and has the machines make another cluster, with another CA: kubelet joins it without
// the hub, and comes back behind it, of its own accord and once.
func (c *Cluster) rejoin(ctx context.Context, say Say) error {
	m := c.machines[edge]
	if _, err := m.Run(ctx, "/root/edgehub", "install"); err != nil {
		return err
	}
	if err := c.hubIs(ctx, say, "online"); err != nil {
		return err
	}
	for _, name := range []string{edge, control} {
		if _, err := c.machines[name].Run(ctx, "kubeadm", "reset", "--force", "--cri-socket=unix:///run/containerd/containerd.sock"); err != nil {
			return err
		}
		say("%s$ kubeadm reset", name)
	}
	before, err := c.kubeletStarts(ctx)
	if err != nil {
		return err
	}
	if err := c.makeControlPlane(ctx, say); err != nil {
		return err
	}
	if err := c.Join(ctx); err != nil {
		return err
	}
	say("edge$ kubeadm join --config=join.yaml")
	if err := c.eventually(ctx, say, "kubelet talks to the hub, which has the other cluster's Node", c.kubeletIsBack); err != nil {
		return err
	}
	if err := c.eventually(ctx, say, "node edge is Ready, and edgehub-rejoin.service has ended", func(ctx context.Context) error {
		out, err := m.Run(ctx, "systemctl", "show", "edgehub-rejoin.service", "--property=ActiveState,Result")
		if err == nil && (!strings.Contains(out, "ActiveState=inactive") || !strings.Contains(out, "Result=success")) {
			err = errors.New(out)
		}
		return errors.Join(err, c.nodeReady(ctx, edge))
	}); err != nil {
		return err
	}
	after, err := c.kubeletStarts(ctx)
	if err == nil && after != before+2 {
		err = fmt.Errorf("kubelet was started %d times, not once by kubeadm join and once by edgehub", after-before)
	}
	if err != nil {
		return err
	}
	out, err := m.Run(ctx, "edgehub", "install")
	if err == nil && !strings.Contains(out, "nothing was changed") {
		err = errors.New("another install has something to do: " + out)
	}
	return err
}

// kubeletStarts is how often systemd has started the edge node's kubelet.
func (c *Cluster) kubeletStarts(ctx context.Context) (int, error) {
	out, err := c.machines[edge].Run(ctx, "journalctl", "--no-pager", "--output=cat", "--unit=kubelet.service")
	return strings.Count(out, "Started kubelet.service"), err
}

// kubeletIsBack returns an error unless the edge node's kubelet was started with the kubeconfig for the hub, and the hub
// has the Node that the cluster has.
func (c *Cluster) kubeletIsBack(ctx context.Context) error {
	const kubeconfig = "/etc/kubernetes/edgehub-kubelet.conf"
	m := c.machines[edge]
	command, err := m.Run(ctx, "sh", "-c", "tr '\\0' ' ' </proc/$(systemctl show kubelet.service --property=MainPID --value)/cmdline")
	if err == nil && !strings.Contains(command, "--kubeconfig="+kubeconfig) {
		err = errors.New("kubelet runs as " + command)
	}
	if err != nil {
		return err
	}
	out, err := m.Run(ctx, "kubectl", "--kubeconfig="+kubeconfig, "get", "node", edge, "--output=json")
	if err != nil {
		return err
	}
	var hubs struct{ Metadata struct{ UID types.UID } }
	if err := json.Unmarshal([]byte(out), &hubs); err != nil {
		return err
	}
	node, err := c.client.CoreV1().Nodes().Get(ctx, edge, metav1.GetOptions{})
	if err == nil && node.UID != hubs.Metadata.UID {
		err = fmt.Errorf("the hub has the Node %s, and the cluster %s", hubs.Metadata.UID, node.UID)
	}
	return err
}
