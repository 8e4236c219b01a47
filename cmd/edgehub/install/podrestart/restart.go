// Package podrestart restarts a node's pods one at a time, so that they find their apiserver anew:
// through the hub after an install, without it before an uninstall.
//
// A restart deletes the pod, as the node may, and nothing is deleted that nothing would replace.
// The pod's controller creates another one. On this node that one has to be Ready before the next
// pod is restarted; a DaemonSet's is on this node. Where the replacement of another controller's
// pod runs is the scheduler's choice, and a node cannot see pods of other nodes.
package podrestart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/hub/podroute"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// Cloud reads and deletes the node's pods with the node's identity.
type Cloud interface {
	Node(ctx context.Context, name string) (*corev1.Node, error)
	Pods(ctx context.Context, node string) ([]corev1.Pod, error)
	DeletePod(ctx context.Context, namespace, name, uid string) error
}

// Node is the node whose pods are restarted.
type Node struct {
	Name    string
	Cloud   Cloud
	Runtime podroute.Runtime
	Out     io.Writer
}

// Pod is a pod that has the wrong route.
type Pod struct {
	nodeapi.PodRoute
	owner types.UID
	// Selected reports whether Restart restarts it: it was asked for, and has no reason to be kept.
	Selected bool
}

func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// List returns the pods with this route, and those that have the hub's address and use a proxy for it. A
// pod that would use one after a restart, too, is not restarted in order to use the hub. hub are the hub's
// servers for pods. Pods of DaemonSets come first: others need what they do for the node's network.
func (n *Node) List(ctx context.Context, route nodeapi.Route, hub []netip.AddrPort, o *Options) ([]Pod, error) {
	list, err := n.Cloud.Pods(ctx, n.Name)
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", n.Name, err)
	}
	node, err := n.Cloud.Node(ctx, n.Name)
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", n.Name, err)
	}
	routes, err := podroute.Of(ctx, list, n.Runtime, hub, node.Status.NodeInfo.KubeletVersion)
	if err != nil {
		return nil, err
	}
	var pods []Pod
	for _, r := range routes {
		if r.Route != route && r.Route != nodeapi.Proxied {
			continue
		}
		if route == nodeapi.ThroughHub && r.Keep == r.Proxy {
			r.Keep = "" // it gets another address
		}
		i := slices.IndexFunc(list, func(p corev1.Pod) bool { return string(p.UID) == r.UID })
		p := Pod{PodRoute: r, Selected: r.Keep == "" && o.selects(&list[i])}
		if owner := metav1.GetControllerOf(&list[i]); owner != nil {
			p.owner = owner.UID
		}
		pods = append(pods, p)
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return cmp.Compare(rank(&a), rank(&b)) })
	return pods, nil
}

// MarkNew marks pods that use the hub, and were not there before, as setting its address themselves:
// they started when kubelet, which used the hub no more, gave them another one.
func MarkNew(behind, before []Pod) {
	for i := range behind {
		p := &behind[i]
		if !slices.ContainsFunc(before, func(b Pod) bool { return b.UID == p.UID }) {
			p.SetsAddress, p.Keep, p.Selected = true, podroute.SetsAddress, false
		}
	}
}

func rank(p *Pod) int {
	if p.ofDaemonSet() {
		return 0
	}
	return 1
}

func (p *Pod) ofDaemonSet() bool {
	const prefix = "DaemonSet/"
	return len(p.Owner) > len(prefix) && p.Owner[:len(prefix)] == prefix
}

// Print lists pods, with what happens to each.
func Print(out io.Writer, pods []Pod) {
	for _, p := range pods {
		switch {
		case p.Selected:
			fmt.Fprintf(out, "  restart  %s  (%s)\n", &p, p.Owner)
		case p.Keep != "":
			fmt.Fprintf(out, "  keep     %s: %s\n", &p, p.Keep)
		default:
			fmt.Fprintf(out, "  keep     %s  (%s): --restart-pods=%s restarts it\n", &p, p.Owner, p.Namespace)
		}
	}
}

const (
	pollInterval = 500 * time.Millisecond
	// settleTime is how long after a pod has gone its replacement may take to be seen on this node.
	// If none is, it is elsewhere. A StatefulSet creates it only then.
	settleTime = 10 * time.Second
)

// Restart restarts the selected pods, one at a time. It stops at the first whose replacement is not
// Ready in time.
func (n *Node) Restart(ctx context.Context, pods []Pod, timeout time.Duration) error {
	for i := range pods {
		p := &pods[i]
		if !p.Selected {
			continue
		}
		fmt.Fprintf(n.Out, "restarting pod %s\n", p)
		if err := n.restart(ctx, p, cmp.Or(timeout, DefaultTimeout)); err != nil {
			return fmt.Errorf("restart pod %s: %w", p, err)
		}
	}
	return nil
}

func (n *Node) restart(ctx context.Context, p *Pod, timeout time.Duration) error {
	before, err := n.Cloud.Pods(ctx, n.Name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(before, func(pod corev1.Pod) bool { return string(pod.UID) == p.UID }) {
		return nil // somebody else has deleted it
	}
	if err := n.Cloud.DeletePod(ctx, p.Namespace, p.Name, p.UID); err != nil {
		return fmt.Errorf("delete it: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%v have passed; no other pod was restarted meanwhile", timeout))
	defer cancel()
	var gone time.Time
	for {
		list, err := n.Cloud.Pods(ctx, n.Name)
		if err == nil {
			err = p.replaced(list, before)
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errNoReplacement):
			gone = time.Time{}
		case gone.IsZero():
			gone = time.Now()
		case time.Since(gone) > settleTime && !p.ofDaemonSet():
			fmt.Fprintf(n.Out, "pod %s is gone, and its replacement is not on this node\n", p)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}

// errNoReplacement is returned while the pod is gone, and this node has no pod in its place.
var errNoReplacement = errors.New("the pod is gone, and there is no other one in its place: look at its controller with kubectl describe")

// replaced returns nil if the pod is gone, and the pods that its owner has created on this node
// since are Ready. before are the pods that were there then.
func (p *Pod) replaced(list, before []corev1.Pod) error {
	known := map[types.UID]bool{}
	for i := range before {
		known[before[i].UID] = true
	}
	found := false
	for i := range list {
		pod := &list[i]
		if string(pod.UID) == p.UID {
			return errors.New("it has not ended yet: kubectl describe shows what it waits for")
		}
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.UID != p.owner || known[pod.UID] {
			continue
		}
		if !isReady(pod) {
			return fmt.Errorf("its replacement %s/%s is not Ready: kubectl describe shows why", pod.Namespace, pod.Name)
		}
		found = true
	}
	if !found {
		return errNoReplacement
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
