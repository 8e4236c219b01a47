// Package cluster runs a real Kubernetes cluster on one Linux machine, for tests
// and for people: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// and any number of nodes, each with a kubelet, a containerd and real containers
// behind a hub of its own. A registry on a loopback port has images for them.
//
//	c, err := cluster.Start(ctx, cluster.Options{Nodes: 2, HubBin: hub, Log: os.Stderr})
//	if err != nil {
//		return err
//	}
//	defer c.Stop()
//	out, err := c.Kubectl(ctx, "get", "nodes")
//
// Without nodes, the control plane alone is up in about 4 s and needs no
// privileges. Two nodes are Ready 1 s later; they take root, and the programs
// that Prepare installs on a Debian. The first start on a machine builds
// Kubernetes, which takes minutes; see BuildKubernetes. So does, in one minute, the
// first with another containerd than the one that is installed.
//
// # What can be made to fail
//
// Node.Link is the network between a hub and the apiserver: it refuses, resets,
// delays and swallows. Every Process can be killed, frozen and restarted:
// APIServer, Node.HubProcess, Node.KubeletProcess, Node.ContainerdProcess, ….
// Node.KillContainer kills a container, and Node.PowerOff all that runs on a node.
// RestoreStore puts etcd back to a backup.
// Registry, where all images come from, is slow, breaks off, refuses and asks for
// passwords; see package images.
//
// # Without a cluster
//
// StartContainerd starts a containerd alone, in any of the versions that nodes run.
// It is up in a tenth of a second.
//
// # What stays
//
// After Stop, and after a Start that failed: the logs in LogDir, nothing else.
// When the program that called Start is killed, the kernel kills the cluster
// with it. What is left then, empty control groups, a bridge and files, goes
// with the next Start or TakeDown, or by RemoveStray and Abandoned. No setting of the host's kernel, firewall or
// files is changed at any time.
//
// # What is different from a real cluster
//
// There is no kube-proxy and no cluster DNS, so Services have no working
// addresses. Pods of different nodes do not reach each other; the host reaches
// all. Nodes share the host's network otherwise: hubs at 127.0.0.11 and up,
// kubelets at 198.18.N.1, and so one cluster with nodes at a time. Another
// that starts meanwhile waits for the first to stop.
//
// A Cluster and what it returns may be used from several goroutines.
package cluster
