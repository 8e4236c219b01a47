// Package peer identifies the program at the other end of a TCP connection on this
// machine, and reports whether it belongs to the node itself: run by an allowed user,
// and in no container.
//
// # How
//
//	peer's address ── sock_diag ──▶ its socket: user, inode
//	inode ── /proc/*/fd ──▶ the processes of its user, or root, that hold it
//	process ── /proc/PID/cgroup ──▶ its container, if any
//	own socket ── TCP_INFO ──▶ still connected; otherwise the above may be about another program
//
// A socket that is not in this machine's network namespace is not the node's, whatever
// address it shows. That covers pods with their own network, even if a route delivers
// their packets to loopback. A pod on the host's network is recognized by its control
// group. If any of the steps fails, the answer is no.
//
// A search reads the open files of processes in this network whose real user is the socket's or
// root (see search), so that nobody else's files delay it. A setuid program that another user has
// started is not found, nor is one that has given up its real user since it opened the socket:
// the answer is no.
//
// # Limits
//
// A container is recognized by its control group. If systemd has started the hub, the
// host's groups are known (services, logins and the like, see host.has), and every other
// group counts as a container. Otherwise only the group names of kubelet and the common
// container runtimes are known: a container that was started by hand (ctr run, runc)
// under another name, on the host's network and as root, counts as the host. So does,
// everywhere, a container without its own control group (podman run --cgroups=disabled,
// bubblewrap, chroot). It does not matter for whom a program acts: kubelet's probes, and
// a port-forward to a pod on the host's network, are connections of the node's programs.
// The open files of a container that runs as root on the host's network are read, too, and
// delay programs that the hub does not know yet.
//
// # Life cycle
//
// [New] looks only at this process. [Peers.SelfTest] checks that the kernel and this
// process's permissions suffice; without them every answer may be no. The package keeps
// nothing open and remembers no verdict, only which processes to look at first.
// Everything here is safe for concurrent use.
package peer
