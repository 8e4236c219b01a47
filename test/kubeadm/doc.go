// Package kubeadm runs a cluster as kubeadm makes it, on two machines of this host: "control",
// by kubeadm init with static pods, and "edge", by kubeadm join with a bootstrap token.
// kube-proxy and CoreDNS are deployed by kubeadm, and flannel by its manifest. All programs are
// the real ones, built here from their modules, and served as images by a registry on the host.
//
//	c, err := kubeadm.Start(ctx, kubeadm.Options{Dir: dir, Hub: "bin/edgehub", Log: os.Stderr})
//	if err != nil {
//		return err
//	}
//	defer c.Stop()
//	err = c.Tell(ctx, os.Stdout) // the story: join, install, outage, power failure
//
// It takes root, and what [cluster.Prepare] and machine.Missing name. A process of
// which the machines are children must call machine.BecomeInit first.
//
// # What is different from a kubeadm cluster elsewhere
//
// The machines share the host's kernel. They have control groups of version 1 where the host has,
// since a controller belongs to one version at a time; kubeadm's check of that
// (SystemVerification) is ignored then, as its own message says to do. containerd leaves
// oom_score_adj alone where it may not lower it. etcd does not sync, kube-proxy leaves the
// kernel's settings of connection tracking alone, and the web server's and the DNS's Services
// have internalTrafficPolicy: Local, so that a node on its own uses what runs on it.
package kubeadm
