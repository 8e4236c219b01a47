package podroute

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// Containers reads the environment of running containers, and lists their processes.
type Containers interface {
	Runtime
	Processes(ctx context.Context, container string) ([]uint32, error)
}

// Observer finds out which pods that have the hub's address connect past it as well: programs that
// have https://kubernetes.default.svc or an apiserver's address from elsewhere than their environment.
//
// It reads the kernel's tables of TCP sockets in the network of each pod, and for pods on the host's
// network which of those sockets their processes have open. A client that connects to a cluster IP
// has this address as its peer there, wherever kube-proxy leads it. So what it says is of
// one moment, and of the minute before for connections that a pod with a network of its own has
// closed itself. Runtimes that keep a pod's sockets in a kernel of their own show none.
//
// No more than maxSockets sockets are read of a pod's network, and maxFiles open files of a
// container on the host's. With more, the route is Unknown, and so are those of pods in the same network.
type Observer struct {
	Containers Containers
	Hub        []netip.Addr // the hub's addresses for pods
	// Past returns where apiservers are reached without the hub; port 0 is any port.
	Past func(context.Context) ([]netip.AddrPort, error)
}

// Limits of an Observer.
const (
	// maxSockets is for a node that runs a few hundred pods and is asked for its status: the kernel
	// writes, and the hub reads, 150 bytes for each.
	maxSockets = 1 << 14
	maxFiles   = 1 << 14 // a system call each
)

// Routes returns the routes of pods as Of does, and those that are Mixed or Unknown. With an ended
// context the rest are Unknown.
func (o *Observer) Routes(ctx context.Context, pods []corev1.Pod, kubelet string) ([]nodeapi.PodRoute, error) {
	routes, containers, err := of(ctx, pods, o.Containers, o.Hub, kubelet)
	if err != nil {
		return nil, err
	}
	past, err := o.Past(ctx)
	for i := range routes {
		r := &routes[i]
		if r.Route != nodeapi.ThroughHub {
			continue
		}
		seen, err := netip.AddrPort{}, err
		if err == nil {
			pod := &pods[slices.IndexFunc(pods, func(p corev1.Pod) bool { return string(p.UID) == r.UID })]
			seen, err = o.connected(ctx, pod, containers[r.UID], past)
		}
		switch {
		case seen.IsValid():
			r.Route, r.Reason = nodeapi.Mixed, fmt.Sprintf("it is connected to %s, which leads past the hub while the cloud is there: have its program use "+
				"KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT of its environment, as in-cluster configuration does", seen)
		case err != nil:
			r.Route, r.Reason = nodeapi.Unknown, fmt.Sprintf("its connections cannot be read: %v", err)
		}
	}
	return routes, nil
}

// connected returns one of the addresses in past that a pod is connected to. If it is connected to
// none, that is zero; with an error, it may be connected to one.
func (o *Observer) connected(ctx context.Context, pod *corev1.Pod, containers []engine.Environment, past []netip.AddrPort) (netip.AddrPort, error) {
	var errs []error
	for _, c := range containers {
		sockets, err := socketsTo(ctx, c, past)
		if pod.Spec.HostNetwork && len(sockets) > 0 {
			var open error
			sockets, open = o.opened(ctx, c.ID, sockets)
			err = errors.Join(err, open)
		}
		if len(sockets) > 0 {
			return sockets[0].peer, nil
		}
		if err == nil && !pod.Spec.HostNetwork {
			return netip.AddrPort{}, nil // all containers have the same network
		}
		errs = append(errs, err)
	}
	return netip.AddrPort{}, errors.Join(errs...)
}

// socket is a TCP socket that has, or had, a connection.
type socket struct {
	peer  netip.AddrPort
	inode string // "0" if no process has it open
}

// socketsTo returns the sockets to one of the addresses in past in the network of a container.
func socketsTo(ctx context.Context, c engine.Environment, past []netip.AddrPort) ([]socket, error) {
	process, err := openProcess(c.PID, c.ID)
	if err != nil {
		return nil, err
	}
	defer process.Close()
	var all []socket
	lines := 0
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		err := readTable(process, table, func(s socket) error {
			if lines++; lines > maxSockets {
				return fmt.Errorf("its network has more than %d sockets", maxSockets)
			}
			if isOneOf(s.peer, past) {
				all = append(all, s)
			}
			return ctx.Err()
		})
		if err != nil && (table == "net/tcp" || !errors.Is(err, os.ErrNotExist)) { // a kernel without IPv6
			return all, err
		}
	}
	return all, nil
}

func isOneOf(peer netip.AddrPort, past []netip.AddrPort) bool {
	return slices.ContainsFunc(past, func(p netip.AddrPort) bool {
		return p.Addr() == peer.Addr() && (p.Port() == 0 || p.Port() == peer.Port())
	})
}

// openProcess opens the folder of a container's process in /proc, which stays the same process's if
// the PID is used again. A hub that sees other processes than containerd gets an error.
func openProcess(pid uint32, container string) (*os.Root, error) {
	process, err := os.OpenRoot(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return nil, err
	}
	groups, err := process.ReadFile("cgroup")
	if err == nil && !strings.Contains(string(groups), container) {
		err = fmt.Errorf("process %d is in no control group of container %s", pid, container)
	}
	if err != nil {
		return nil, errors.Join(err, process.Close())
	}
	return process, nil
}

// opened returns those of sockets that processes of a container have open.
func (o *Observer) opened(ctx context.Context, container string, sockets []socket) ([]socket, error) {
	pids, err := o.Containers.Processes(ctx, container)
	if err != nil {
		return nil, err
	}
	var own []socket
	files := 0
	for _, pid := range pids {
		err := eachSocket(pid, container, func(inode string) error {
			if files++; files > maxFiles {
				return fmt.Errorf("it has more than %d files open", maxFiles)
			}
			if i := slices.IndexFunc(sockets, func(s socket) bool { return s.inode == inode }); i >= 0 {
				own = append(own, sockets[i])
			}
			return ctx.Err()
		})
		if err != nil && !hasEnded(err) {
			return own, err
		}
	}
	return own, nil
}

// eachSocket calls do for each open file of a process until it fails: with a socket's inode, or "".
func eachSocket(pid uint32, container string, do func(inode string) error) error {
	process, err := openProcess(pid, container)
	if err != nil {
		return err
	}
	defer process.Close()
	files, err := process.Open("fd")
	if err != nil {
		return err
	}
	defer files.Close()
	for {
		const atATime = 1024 // a process may have millions
		names, end := files.Readdirnames(atATime)
		for _, name := range names {
			target, err := process.Readlink("fd/" + name)
			if err != nil && !hasEnded(err) { // it may have been closed
				return err
			}
			inode, _ := strings.CutPrefix(strings.TrimSuffix(target, "]"), "socket:[")
			if err := do(inode); err != nil {
				return err
			}
		}
		if errors.Is(end, io.EOF) {
			return nil
		} else if end != nil {
			return end
		}
	}
}

// hasEnded reports whether an error is of a process that has ended, or a file that was closed.
func hasEnded(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// readTable calls do for each socket that does not listen of a process's network, until do fails.
func readTable(process *os.Root, table string, do func(socket) error) error {
	f, err := process.Open(table)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
		fields := strings.Fields(lines.Text())
		const peer, state, inode, listen = 2, 3, 9, "0A"
		if len(fields) <= inode || fields[0] == "sl" || fields[state] == listen {
			continue
		}
		address, err := parsePeer(fields[peer])
		if err == nil {
			err = do(socket{address, fields[inode]})
		}
		if err != nil {
			return fmt.Errorf("read %s of %s: %w", table, process.Name(), err)
		}
	}
	return lines.Err()
}

// parsePeer parses ADDRESS:PORT of the kernel's table: hexadecimal, an address in words of four bytes
// in the machine's byte order.
func parsePeer(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for word := range slices.Chunk(b, 4) {
		if len(word) == 4 {
			binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
		}
	}
	ip, ok := netip.AddrFromSlice(b)
	number, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not ADDRESS:PORT", text)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)), nil
}
