package podroute

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// dials is the variable that makes the test's binary the program of a container. Its value is how the
// program connects, and to which address that it listens at.
const dials = "PODROUTE_TEST_DIALS"

func TestMain(m *testing.M) {
	if order := os.Getenv(dials); order != "" {
		how, address, _ := strings.Cut(order, " ")
		if err := program(how, address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// program connects to a listener of its own, prints the address, and waits for the end of its input.
func program(how, address string) error {
	if up, _ := net.InterfaceAddrs(); len(up) == 0 { // on the host's network there are some
		if err := upLoopback(); err != nil {
			return fmt.Errorf("set lo up: %w", err)
		}
	}
	if how == "hides" {
		for range maxFiles {
			if _, err := syscall.Dup(int(os.Stdin.Fd())); err != nil {
				return fmt.Errorf("open %d files: %w", maxFiles, err)
			}
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return err
	}
	peer := l.Addr().(*net.TCPAddr).AddrPort()
	var client io.Closer
	if how == "mapped" {
		client, err = dialMapped(peer)
	} else {
		client, err = net.Dial("tcp", peer.String())
	}
	if err != nil {
		return err
	}
	server, err := l.Accept()
	if err != nil {
		return err
	}
	if how == "closes" {
		client.Close()
		_, _ = server.Read(make([]byte, 1)) // io.EOF
		server.Close()                      // the client's end waits from now on
	}
	fmt.Println(peer)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func upLoopback() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	request := struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP | syscall.IFF_RUNNING | syscall.IFF_LOOPBACK}
	copy(request.name[:], "lo")
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}

// dialMapped connects a socket of IPv6 to an address of IPv4, as Java does.
func dialMapped(peer netip.AddrPort) (io.Closer, error) {
	fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "mapped"), syscall.Connect(fd, &syscall.SockaddrInet6{Port: int(peer.Port()), Addr: peer.Addr().As16()})
}

// pod is a pod of one container, a process with connections.
type pod struct {
	process *exec.Cmd
	stop    func()
	peer    netip.AddrPort // that it is connected to
}

func start(t *testing.T, how, address string, hostNetwork bool) *pod {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), dials+"="+how+" "+address)
	if !hostNetwork {
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if os.Geteuid() != 0 {
			c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		}
	}
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		if os.Geteuid() != 0 && errors.Is(err, syscall.EPERM) {
			t.Skipf("NOT RUN: this machine gives users no network namespace: %v", err)
		}
		t.Fatal(err)
	}
	p := &pod{process: c, stop: func() { in.Close(); _ = c.Wait() }}
	t.Cleanup(p.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p.peer = netip.MustParseAddrPort(strings.TrimSpace(line))
	return p
}

// fakeContainers has one container, a process and no other, in the control group of the tests.
type fakeContainers struct {
	fakeRuntime
	pid uint32
}

func (f fakeContainers) Processes(context.Context, string) ([]uint32, error) {
	return []uint32{f.pid}, nil
}

// observe returns the route of a pod that has the hub's address in its environment.
func (p *pod) observe(t *testing.T, hostNetwork bool, past []netip.AddrPort, change func(*engine.Environment)) nodeapi.PodRoute {
	t.Helper()
	return p.observeBy(t, &Observer{Hub: hub}, hostNetwork, past, change)
}

func (p *pod) observeBy(t *testing.T, o *Observer, hostNetwork bool, past []netip.AddrPort, change func(*engine.Environment)) nodeapi.PodRoute {
	t.Helper()
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	c := container("u1", "169.254.2.1", "169.254.2.1")
	c.ID, c.PID = string(groups), uint32(p.process.Process.Pid)
	if change != nil {
		change(&c)
	}
	o.Containers = fakeContainers{fakeRuntime{environments: []engine.Environment{c}}, c.PID}
	o.Past = func(context.Context) ([]netip.AddrPort, error) {
		if past == nil {
			return nil, errors.New("the cloud is away")
		}
		return past, nil
	}
	one := daemon()
	one.Spec.HostNetwork = hostNetwork
	got, err := o.Routes(t.Context(), []corev1.Pod{*one}, "v1.37.0")
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	return got[0]
}

func TestAPodThatConnectsPastTheHubIsMixed(t *testing.T) {
	const host = true
	for name, tt := range map[string]struct {
		how, address string
		hostNetwork  bool
	}{
		"from its own network":                    {"stays", "127.0.0.9", !host},
		"with IPv6":                               {"stays", "::1", !host},
		"with a socket of both families":          {"mapped", "127.0.0.9", !host},
		"and has closed the connection":           {"closes", "127.0.0.9", !host},
		"from the host's network":                 {"stays", "127.0.0.9", host},
		"from the host's network, mapped to IPv6": {"mapped", "127.0.0.9", host},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, tt.how, tt.address, tt.hostNetwork)
			elsewhere := netip.MustParseAddrPort("192.0.2.1:6443")
			got := p.observe(t, tt.hostNetwork, []netip.AddrPort{elsewhere, p.peer}, nil)
			if got.Route != nodeapi.Mixed || !strings.Contains(got.Reason, "it is connected to "+p.peer.String()+", which leads past the hub while the cloud is there: ") {
				t.Errorf("it is connected to %s, and its route is %s: %s", p.peer, got.Route, got.Reason)
			}
			if got := p.observe(t, tt.hostNetwork, []netip.AddrPort{elsewhere, netip.AddrPortFrom(p.peer.Addr(), 0)}, nil); got.Route != nodeapi.Mixed {
				t.Errorf("for any port its route is %s: %s", got.Route, got.Reason)
			}
			another := netip.AddrPortFrom(p.peer.Addr(), 443) // nobody's
			if got := p.observe(t, tt.hostNetwork, []netip.AddrPort{elsewhere, another}, nil); got.Route != nodeapi.ThroughHub || got.Reason != "" {
				t.Errorf("an apiserver has another address, and its route is %s: %s", got.Route, got.Reason)
			}
		})
	}
}

// Where the cluster IP leads to the hub, only connections that are older lead past it. The process is on the
// host's network, where the other end of its connection is, as the hub is.
func TestConnectionsThatLeadToTheHub(t *testing.T) {
	for name, tt := range map[string]struct {
		how               string
		atHub, host, past bool
	}{
		"the hub has the other end":                                  {"stays", true, false, false},
		"another has it":                                             {"stays", false, false, true},
		"another had it, and the connection is over":                 {"closes", false, false, false},
		"nobody knows which has it of a pod's on the host's network": {"stays", false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, tt.how, "127.0.0.9", true)
			o := &Observer{Hub: hub, Led: func(a netip.Addr) bool { return a == p.peer.Addr() }}
			if tt.atHub {
				o.Hub = append(slices.Clone(hub), p.peer)
			}
			got := p.observeBy(t, o, tt.host, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:6443"), p.peer}, nil)
			want, why := nodeapi.ThroughHub, ""
			if tt.past {
				want, why = nodeapi.Mixed, "it has been connected to "+p.peer.String()+" since before that led to the hub: restart it"
			}
			if got.Route != want || got.Reason != why {
				t.Errorf("its route is %s: %s; want %s: %s", got.Route, got.Reason, want, why)
			}
		})
	}
}

// The hub's own connections to the apiservers are in the host's network.
func TestConnectionsOfOthersOnTheHostsNetworkAreNotAPods(t *testing.T) {
	p, other := start(t, "stays", "127.0.0.9", true), start(t, "stays", "127.0.0.10", true)
	if got := p.observe(t, true, []netip.AddrPort{other.peer}, nil); got.Route != nodeapi.ThroughHub {
		t.Errorf("its route is %s: %s", got.Route, got.Reason)
	}
}

func TestConnectionsThatCannotBeRead(t *testing.T) {
	const says = "its connections cannot be read: "
	for _, hostNetwork := range []bool{false, true} {
		p := start(t, "stays", "127.0.0.9", hostNetwork)
		past := []netip.AddrPort{p.peer}
		mustBeUnknown := func(got nodeapi.PodRoute, why string) {
			t.Helper()
			if got.Route != nodeapi.Unknown || !strings.HasPrefix(got.Reason, says) || !strings.Contains(got.Reason, why) {
				t.Errorf("on the host's network: %t: its route is %s: %s", hostNetwork, got.Route, got.Reason)
			}
		}
		mustBeUnknown(p.observe(t, hostNetwork, nil, nil), "the cloud is away")
		mustBeUnknown(p.observe(t, hostNetwork, past, func(c *engine.Environment) { c.ID = "4f1d1d6a" }), "is in no control group of container 4f1d1d6a")
		p.stop()
		mustBeUnknown(p.observe(t, hostNetwork, past, nil), "no such file")
	}
	p := start(t, "hides", "127.0.0.9", true)
	if got := p.observe(t, true, []netip.AddrPort{p.peer}, nil); got.Route != nodeapi.Unknown || got.Reason != says+"it has more than 16384 files open" {
		t.Errorf("it has many files open, and its route is %s: %s", got.Route, got.Reason)
	}
}
