package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// maxNetworks is how many pods are tried: mostly the way to the node is the same for all.
const maxNetworks = 3

// podNetworks opens network namespaces of the node's pods: those of processes in kubelet's control
// groups that are not in the node's own. Processes come and go meanwhile, and are left out then.
func podNetworks() []network {
	own, err := os.Readlink("/proc/thread-self/ns/net") // the first thread may be one that inside has left elsewhere
	if err != nil {
		return nil
	}
	byNamespace := map[string]int{}
	var networks []network
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		link := filepath.Join(process, "ns", "net")
		namespace, err := os.Readlink(link)
		if err != nil || namespace == own || !isPods(process) {
			continue
		}
		comm, _ := os.ReadFile(filepath.Join(process, "comm"))
		name := fmt.Sprintf("the pod of process %s (%q)", filepath.Base(process), bytes.TrimSpace(comm))
		if i, ok := byNamespace[namespace]; ok {
			networks[i].name = name // the first is the sandbox's, which says little
			continue
		}
		if len(networks) == maxNetworks {
			continue
		}
		ns, err := os.Open(link)
		if err != nil {
			continue
		}
		if !isRuntimes(ns) {
			ns.Close()
			continue
		}
		byNamespace[namespace] = len(networks)
		networks = append(networks, network{name, ns})
	}
	return networks
}

// isPods reports whether a process is in a control group that kubelet has made for a pod.
func isPods(process string) bool {
	groups, err := os.ReadFile(filepath.Join(process, "cgroup"))
	return err == nil && bytes.Contains(groups, []byte("kubepods"))
}

// isRuntimes reports whether a container runtime has made a network namespace: a pod that makes one
// owns it in a user namespace, and could have the hub's address in it.
func isRuntimes(ns *os.File) bool {
	users, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return false
	}
	defer unix.Close(users)
	var owner, own unix.Stat_t
	err = errors.Join(unix.Fstat(users, &owner), unix.Stat("/proc/self/ns/user", &own))
	return err == nil && owner.Ino == own.Ino
}

// The ends of the wire of makeNetwork. The kernel's own hardware addresses begin otherwise.
const (
	hostEnd, hostMAC = "edgehub-try0", "02:65:68:75:62:01"
	podEnd, podMAC   = "eth0", "02:65:68:75:62:02"
)

// makeNetwork makes a network namespace with a wire to the node, and routes between its addresses and
// the servers'. The caller closes the namespace and calls remove.
func makeNetwork(ctx context.Context, servers []netip.AddrPort, podCIDRs []string) (n network, remove func(), err error) {
	ns, err := newNamespace()
	if err != nil {
		return network{}, nil, err
	}
	remove = func() { _ = ip(context.WithoutCancel(ctx), nil, "link", "delete", "dev", hostEnd) }
	remove() // one that a killed install has left
	host := []string{
		"link add " + hostEnd + " address " + hostMAC + " type veth peer name " + podEnd + " address " + podMAC + " netns /proc/self/fd/3",
		"link set " + hostEnd + " up",
	}
	pod := []string{"link set " + podEnd + " up"}
	for _, server := range servers {
		there, own := netip.PrefixFrom(server.Addr(), server.Addr().BitLen()), podAddress(server.Addr(), podCIDRs)
		host = append(host, fmt.Sprintf("route replace %s dev %s", own, hostEnd),
			fmt.Sprintf("neighbour replace %s lladdr %s dev %s nud permanent", own.Addr(), podMAC, hostEnd))
		nodad := ""
		if there.Addr().Is6() {
			nodad = " nodad" // the address can be used at once
		}
		pod = append(pod, fmt.Sprintf("address add %s dev %s%s", own, podEnd, nodad),
			fmt.Sprintf("route add %s dev %s", there, podEnd),
			fmt.Sprintf("neighbour add %s lladdr %s dev %s nud permanent", there.Addr(), hostMAC, podEnd))
	}
	run := func(commands []string) {
		for _, c := range commands {
			if err == nil {
				err = ip(ctx, ns, strings.Fields(c)...)
			}
		}
	}
	run(host)
	err = errors.Join(err, inside(ns, func() { run(pod) }))
	if err != nil {
		remove()
		ns.Close()
		return network{}, nil, err
	}
	return network{"a network namespace made for this, since no pod of the node has its own", ns}, remove, nil
}

// newNamespace makes a network namespace, which lives as long as the file is open.
func newNamespace() (ns *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good, as in inside
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
	}()
	<-done
	return ns, err
}

// podAddress returns an address such as pods have, as rules may ask for those: the last of the Node's
// range, which no pod has as long as none of the node's has a network of its own; without a range one
// beside the server's.
func podAddress(server netip.Addr, podCIDRs []string) netip.Prefix {
	bytes := server.AsSlice()
	bytes[len(bytes)-1] ^= 0xff
	if cidr, ok := podCIDR(server, podCIDRs); ok {
		bytes = cidr.Addr().AsSlice()
		for bit := cidr.Bits(); bit < server.BitLen()-1; bit++ { // IPv4's very last is for broadcasts
			bytes[bit/8] |= 0x80 >> (bit % 8)
		}
	}
	address, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(address, address.BitLen())
}

// podCIDR returns the range of the server's family.
func podCIDR(server netip.Addr, podCIDRs []string) (netip.Prefix, bool) {
	for _, text := range podCIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil && cidr.Addr().Is4() == server.Is4() {
			return cidr.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// ip runs ip with extra as its file 3, if that is not nil.
func ip(ctx context.Context, extra *os.File, args ...string) error {
	cmd := exec.CommandContext(ctx, "ip", args...)
	if extra != nil {
		cmd.ExtraFiles = []*os.File{extra}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
