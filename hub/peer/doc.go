// Package peer tells which program of this machine is at the other end of a TCP
// connection, and whether it belongs to the node itself: run by an allowed user,
// and in no container.
//
// # How
//
//	peer's address ── sock_diag ──▶ its socket: user, inode
//	inode ── /proc/*/fd ──▶ the processes that hold it
//	process ── /proc/PID/cgroup ──▶ the container it is in, if any
//	own socket ── TCP_INFO ──▶ still connected, or all of this is about another program
//
// A socket that this machine's network namespace does not have is somebody
// else's, whatever address it shows: that is so for a pod with a network of its
// own, also where a route brings its packets to loopback. A pod on the host's
// network is known by its control group. Where anything of this cannot be found
// out, the answer is no.
//
// # What it cannot tell
//
// A container is known by its control group. Where systemd has started the hub, the
// groups of the host are known: services, logins and the like (see host.has), and
// every other group is a container's. Elsewhere only the names are known that kubelet
// and the more common container runtimes give: a container that was made by hand
// (ctr run, runc) under another name, on the host's network, as root, is taken for
// the host's there. So is, anywhere, a container without a control group of its own
// (podman run --cgroups=disabled, bubblewrap, chroot). Nor does it matter on whose
// behalf a program acts: kubelet's own probes, and a port-forward to a pod on the
// host's network, are connections of the node's programs.
//
// # Life cycle
//
// [New] looks at this process alone. [Peers.SelfTest] finds out whether this
// kernel and this process's rights suffice; without it every answer may be no.
// Nothing is kept open, and no verdict is remembered, only where to look first.
// Everything here is safe for concurrent use.
package peer
