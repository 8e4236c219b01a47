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
	Hub        []netip.AddrPort // the hub's servers for pods
	// Past returns where apiservers are reached without the hub; port 0 is any port.
	Past func(context.Context) ([]netip.AddrPort, error)
	// Led reports whether connections to one of these addresses lead to the hub now; nil: none do. Those that
	// are older still lead past it: the hub has none from the same address and port. Of pods on the host's
	// network that cannot be known, since kube-proxy changes where their connections come from.
	Led func(netip.Addr) bool
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
	led, failed := o.led(ctx, past)
	err = errors.Join(err, failed)
	for i := range routes {
		r := &routes[i]
		if r.Route != nodeapi.ThroughHub {
			continue
		}
		seen, err := netip.AddrPort{}, err
		if err == nil {
			pod := &pods[slices.IndexFunc(pods, func(p corev1.Pod) bool { return string(p.UID) == r.UID })]
			seen, err = o.connected(ctx, pod, containers[r.UID], past, led)
		}
		switch {
		case isOneOf(seen, led.addresses):
			r.Route, r.Reason = nodeapi.Mixed, fmt.Sprintf("it has been connected to %s since before that led to the hub: restart it", seen)
		case seen.IsValid():
			r.Route, r.Reason = nodeapi.Mixed, fmt.Sprintf("it is connected to %s, which leads past the hub while the cloud is there: have its program use "+
				"KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT of its environment, as in-cluster configuration does", seen)
		case err != nil:
			r.Route, r.Reason = nodeapi.Unknown, fmt.Sprintf("its connections cannot be read: %v", err)
		}
	}
	return routes, nil
}

// connected returns one of the addresses in past that a pod is connected to, unless that leads to the hub. If
// it is connected to none, that is zero; with an error, it may be connected to one.
func (o *Observer) connected(ctx context.Context, pod *corev1.Pod, containers []engine.Environment, past []netip.AddrPort, led *ledToHub) (netip.AddrPort, error) {
	var errs []error
	for _, c := range containers {
		sockets, err := socketsTo(ctx, c, past)
		sockets, err = led.without(ctx, sockets, err, pod.Spec.HostNetwork)
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

// ledToHub are connections to addresses that lead to the hub.
type ledToHub struct {
	addresses []netip.AddrPort
	hub       []netip.Addr
	from      map[netip.AddrPort]bool // the other ends of the hub's connections from pods
}

// led returns which of past lead to the hub.
func (o *Observer) led(ctx context.Context, past []netip.AddrPort) (*ledToHub, error) {
	l := &ledToHub{hub: addressesOf(o.Hub), from: map[netip.AddrPort]bool{}}
	for _, a := range past {
		if o.Led != nil && o.Led(a.Addr()) {
			l.addresses = append(l.addresses, a)
		}
	}
	if len(l.addresses) == 0 {
		return l, nil
	}
	err := l.read(ctx)
	return l, err
}

// read adds the connections that the hub has now.
func (l *ledToHub) read(ctx context.Context) error {
	own, err := os.OpenRoot("/proc/self")
	if err != nil {
		return err
	}
	defer own.Close()
	return readTables(own, func(s socket) error {
		if slices.Contains(l.hub, s.local.Addr()) {
			l.from[s.peer] = true
		}
		return ctx.Err()
	})
}

// without leaves out the sockets of a pod that lead to the hub, and those of closed connections, of which
// nobody knows. err is that of reading the sockets.
func (l *ledToHub) without(ctx context.Context, sockets []socket, err error, hostNetwork bool) ([]socket, error) {
	leads := func(s socket) bool {
		return isOneOf(s.peer, l.addresses) && (hostNetwork || !s.open || l.from[s.local])
	}
	sockets = slices.DeleteFunc(sockets, leads)
	if slices.ContainsFunc(sockets, func(s socket) bool { return isOneOf(s.peer, l.addresses) }) {
		err = errors.Join(err, l.read(ctx)) // they may be newer than what was read
		sockets = slices.DeleteFunc(sockets, leads)
	}
	return sockets, err
}

// socket is a TCP socket that has, or had, a connection.
type socket struct {
	local, peer netip.AddrPort
	open        bool   // neither end has closed the connection
	inode       string // "0" if no process has it open
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
	err = readTables(process, func(s socket) error {
		if lines++; lines > maxSockets {
			return fmt.Errorf("its network has more than %d sockets", maxSockets)
		}
		if isOneOf(s.peer, past) {
			all = append(all, s)
		}
		return ctx.Err()
	})
	return all, err
}

// readTables is readTable for both families.
func readTables(process *os.Root, do func(socket) error) error {
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		err := readTable(process, table, do)
		if err != nil && (table == "net/tcp" || !errors.Is(err, os.ErrNotExist)) { // a kernel without IPv6
			return err
		}
	}
	return nil
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
		const local, peer, state, inode, established, listen = 1, 2, 3, 9, "01", "0A"
		if len(fields) <= inode || fields[0] == "sl" || fields[state] == listen {
			continue
		}
		here, err := parseAddress(fields[local])
		there, failed := parseAddress(fields[peer])
		if err = errors.Join(err, failed); err == nil {
			err = do(socket{here, there, fields[state] == established, fields[inode]})
		}
		if err != nil {
			return fmt.Errorf("read %s of %s: %w", table, process.Name(), err)
		}
	}
	return lines.Err()
}

// parseAddress parses ADDRESS:PORT of the kernel's table: hexadecimal, an address in words of four bytes
// in the machine's byte order.
func parseAddress(text string) (netip.AddrPort, error) {
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
