package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// The addresses of host and machine on the wire of a machine that is alone, from the range
// that is set aside for tests of network devices (RFC 2544).
const (
	HostIP = "198.19.250.1"
	IP     = "198.19.250.2"
)

// Wire is a machine's connection to the host, and to other machines if there is a bridge.
type Wire struct {
	// Host is the host's address with its prefix length, and the machine's default route.
	Host string
	// Address is the machine's.
	Address string
	// Bridge is an interface of the host's, see [AddBridge]. Empty: the machine is alone with
	// the host.
	Bridge string
}

// hostEnd is the host's end of the wire.
func (m *Machine) hostEnd() string { return wirePrefix + m.options.Name }

const wirePrefix = "edgehub-"

// wire joins host and machine. The host's end goes with the machine's.
func (m *Machine) wire(ctx context.Context) error {
	w, end := m.options.Wire, m.hostEnd()
	pid := strconv.Itoa(m.cmd.Process.Pid)
	_ = m.unwire() // of one that crashed
	if err := ip(ctx, "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", pid); err != nil {
		return err
	}
	step := []string{"address", "add", w.Host, "dev", end}
	if w.Bridge != "" {
		step = []string{"link", "set", end, "master", w.Bridge}
	}
	if m.cut {
		step = []string{"link", "set", end, "nomaster"}
	}
	if err := errors.Join(ip(ctx, step...), ip(ctx, "link", "set", end, "up")); err != nil {
		return err
	}
	gateway, _, _ := strings.Cut(w.Host, "/")
	for _, step := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", w.Address, "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", gateway},
	} {
		inside := append([]string{"--target", pid, "--net", "ip"}, step...)
		if out, err := exec.CommandContext(ctx, "nsenter", inside...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(step, " "), err, out)
		}
	}
	return nil
}

// unwire removes the host's end, and with it the machine's: by itself it goes when the kernel
// gets round to it.
func (m *Machine) unwire() error {
	err := ip(context.Background(), "link", "delete", m.hostEnd())
	if !m.wired() {
		return nil // the kernel may have been faster
	}
	return err
}

// wired reports whether there is a host's end.
func (m *Machine) wired() bool {
	_, err := net.InterfaceByName(m.hostEnd())
	return err == nil
}

// Cut takes the machine off the bridge: what it sends is lost, and nobody answers, as behind
// a router that has failed. Its own end still looks well. It stays so when it boots.
func (m *Machine) Cut(ctx context.Context) error {
	m.cut = true
	return ip(ctx, "link", "set", m.hostEnd(), "nomaster")
}

// Mend puts it back.
func (m *Machine) Mend(ctx context.Context) error {
	m.cut = false
	return ip(ctx, "link", "set", m.hostEnd(), "master", m.options.Wire.Bridge)
}

// Move gives the machine another address, with its prefix length, from its next boot on.
func (m *Machine) Move(address string) { m.options.Wire.Address = address }

// AddBridge makes an interface of the host's that several machines share, and gives the host
// an address there, with its prefix length. One that is there already, of a test that crashed,
// is replaced.
func AddBridge(ctx context.Context, name, address string) error {
	_ = RemoveBridge(ctx, name)
	return errors.Join(
		ip(ctx, "link", "add", name, "type", "bridge"),
		ip(ctx, "address", "add", address, "dev", name),
		ip(ctx, "link", "set", name, "up"))
}

// RemoveBridge removes a bridge when its machines have stopped.
func RemoveBridge(ctx context.Context, name string) error { return ip(ctx, "link", "delete", name) }

func ip(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
