package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain runs the tests on a node of their own: a network namespace in which they may change the
// firewall, and no processes but theirs.
func TestMain(m *testing.M) {
	const child = "EDGEHUB_TEST_IN_NAMESPACES"
	switch {
	case os.Geteuid() != 0:
		fmt.Fprintln(os.Stderr, "NOT RUN: what the firewall does to pods: it takes root to make network namespaces")
		os.Exit(m.Run())
	case os.Getenv(child) != "":
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var (
	v4, v6   = netip.MustParseAddrPort("169.254.2.1:10268"), netip.MustParseAddrPort("[fd00::2:1]:10268")
	podCIDRs = []string{"10.244.1.0/24", "fd00:10:244:1::/64"}
)

func run(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-ec", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// node has the hub's addresses, a listener on each, an uplink, and a firewall without rules. The
// namespace returned is that of a host on the uplink.
func node(t *testing.T) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: it takes root to make network namespaces")
	}
	lan, err := newNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lan.Close() })
	run(t, `ip link set lo up
ip link add hub0 type bridge; ip address add 169.254.2.1/32 dev hub0; ip address add fd00::2:1/128 dev hub0 nodad; ip link set hub0 up`)
	if err := ip(t.Context(), lan, strings.Fields("link add uplink0 type veth peer name eth0 netns /proc/self/fd/3")...); err != nil {
		t.Fatal(err)
	}
	run(t, `ip link set uplink0 up; ip address add 192.0.2.2/24 dev uplink0; ip address add 2001:db8::2/64 dev uplink0 nodad
ip route add default via 192.0.2.1; ip -6 route add default via 2001:db8::1`)
	if err := inside(lan, func() {
		run(t, `ip link set eth0 up; ip address add 192.0.2.3/24 dev eth0; ip address add 2001:db8::3/64 dev eth0 nodad
ip route add 169.254.2.1 via 192.0.2.2; ip route add fd00::2:1 via 2001:db8::2`)
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		out, err := exec.Command("sh", "-c", `ip link delete hub0; ip link delete uplink0
for i in iptables ip6tables; do $i -P INPUT ACCEPT; $i -F; $i -X; done`).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	for _, server := range []netip.AddrPort{v4, v6} {
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(server))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
	}
	return lan
}

// connected is for what does not depend on the answer.
func connected(context.Context, net.Conn) error { return nil }

func programOf(server netip.AddrPort) string { return family(server) + "tables" }

// refuse adds what a firewall accepts at its beginning, and these rules.
func refuse(t *testing.T, server netip.AddrPort, rules ...string) {
	t.Helper()
	for _, rule := range append([]string{"-A INPUT -i lo -j ACCEPT"}, rules...) {
		run(t, programOf(server)+" "+rule)
	}
}

// More rules, and other refusals, are those of TestRulesOfIptables and TestOutcomes: a packet that is dropped takes
// until Reach gives up, 10 s.
func TestWhatAFirewallDoesToPods(t *testing.T) {
	for name, tt := range map[string]struct {
		server  netip.AddrPort
		rules   []string
		outcome string // empty: pods reach the hub
		cause   string
	}{
		"no rule":       {server: v4},
		"no rule, IPv6": {server: v6},
		"a last REJECT, as RHEL's": {v4, []string{"-A INPUT -p tcp --dport 22 -j DROP", "-A INPUT -j REJECT --reject-with icmp-host-prohibited"},
			"no route to host", "-A INPUT -j REJECT --reject-with icmp-host-prohibited"},
		"prohibited, IPv6": {v6, []string{"-A INPUT -j REJECT --reject-with icmp6-adm-prohibited"}, "no route to host", "-A INPUT -j REJECT --reject-with icmp6-adm-prohibited"},
	} {
		t.Run(name, func(t *testing.T) {
			node(t)
			refuse(t, tt.server, tt.rules...)
			var out bytes.Buffer
			err := Reach(t.Context(), []netip.AddrPort{tt.server}, connected, podCIDRs, &out)
			t.Log(err, out.String())
			if tt.outcome == "" {
				if err != nil || !strings.Contains(out.String(), "pods reach the hub at "+tt.server.String()) {
					t.Errorf("%v; %s", err, out.String())
				}
				return
			}
			if err == nil {
				t.Fatal("pods are said to reach the hub")
			}
			for _, want := range []string{tt.server.String(), tt.outcome, strconv.Quote(tt.cause), "install again", doesNotLast} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q", want, err)
				}
			}
		})
	}
}

// The rules of a service mesh lead a pod's connection to a sidecar, which takes it: no firewall is the reason.
func TestWhatAMeshDoesToPods(t *testing.T) {
	node(t)
	var out bytes.Buffer
	asked := 0
	ask := func(context.Context, net.Conn) error {
		if asked++; asked == 1 { // by the node itself
			return nil
		}
		return io.EOF
	}
	err := Reach(t.Context(), []netip.AddrPort{v4}, ask, podCIDRs, &out)
	if err == nil || !strings.Contains(err.Error(), "connected, but not to the hub (EOF)") || strings.Contains(err.Error(), "install again") {
		t.Errorf("%v; %s", err, out.String())
	}
}

// The commands that are printed are run as they stand. They let pods in, and nobody from the LAN, though that has routes
// to the addresses.
func TestTheCommandsLetInPodsOnly(t *testing.T) {
	servers := []netip.AddrPort{v4, v6}
	for name, tt := range map[string]struct{ refuse, cause, undo string }{
		"rules of iptables": {"for i in iptables ip6tables; do $i -A INPUT -i lo -j ACCEPT; $i -A INPUT -j REJECT; done", `"-A INPUT -j REJECT --reject-with icmp-port-unreachable" (iptables-save)`, "true"},
		"rules of nftables": {
			`nft 'table inet filter { chain input { type filter hook input priority filter; iif lo accept; meta l4proto ipv6-icmp accept; tcp dport 22 accept; counter reject comment "the rest"; }; }'`,
			"of nftables' chain inet filter input", "nft delete table inet filter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			lan := node(t)
			if strings.HasPrefix(tt.refuse, "nft ") {
				needNft(t)
			}
			fromLAN := func(server netip.AddrPort) error {
				var err error
				return errors.Join(inside(lan, func() { err = dial(t.Context(), server, connected) }), err)
			}
			for _, server := range servers {
				if err := fromLAN(server); err != nil {
					t.Fatalf("without a firewall the LAN does not reach %s: this would show nothing: %v", server, err)
				}
			}
			run(t, tt.refuse)
			t.Cleanup(func() {
				if out, err := exec.Command("sh", "-ec", tt.undo).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
			err := Reach(t.Context(), servers, connected, podCIDRs, t.Output())
			if err == nil || !strings.Contains(err.Error(), tt.cause) {
				t.Fatalf("pods are refused, and: %v", err)
			}
			commands := 0
			for line := range strings.Lines(err.Error()) {
				if command, ok := strings.CutPrefix(line, "  "); ok {
					run(t, command)
					commands++
				}
			}
			if err := Reach(t.Context(), servers, connected, podCIDRs, t.Output()); err != nil || commands != len(servers) {
				t.Errorf("after %d commands: %v", commands, err)
			}
			for _, server := range servers {
				if err := fromLAN(server); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("a host of the LAN reaches %s: %v", server, err)
				}
			}
		})
	}
}

func needNft(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("nft is not installed: make test-unit installs it (Debian's package nftables)")
	}
	t.Skip("NOT RUN: nftables' own rules: nft is not installed (Debian's package nftables)")
}

// A CNI plugin that does not give out the addresses of the Node's podCIDR has pods which no rule for that lets in.
func TestAPodRangeIsOneThatPodsHave(t *testing.T) {
	node(t)
	n, remove, err := makeNetwork(t.Context(), []netip.AddrPort{v4}, podCIDRs)
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	defer n.ns.Close()
	for want, cidrs := range map[string][]string{"10.244.1.0/24": podCIDRs, unknownPods: {"10.244.2.0/24"}} {
		if got := podRange(t.Context(), []network{n}, v4, cidrs); got != want {
			t.Errorf("%q: got %s, want %s", cidrs, got, want)
		}
	}
	if got := podRange(t.Context(), []network{n}, v4, nil); got != unknownPods {
		t.Errorf("no range: got %s", got)
	}
}

// The pods of a node are tried where there are any, and one that gets through is enough: another's
// own rules are not the node's.
func TestPodsOfTheNodeAreTried(t *testing.T) {
	node(t)
	var last *os.File
	for range 2 {
		n, remove, err := makeNetwork(t.Context(), []netip.AddrPort{v4}, podCIDRs)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.ns.Close() })
		if last == nil { // without a wire the node is not reached from it
			remove()
		} else {
			t.Cleanup(remove)
		}
		last = n.ns
		process := startPod(t, n.ns)
		groups := fmt.Sprintf("/proc/%d/cgroup", process)
		fake := t.TempDir() + "/cgroup"
		if err := errors.Join(os.WriteFile(fake, []byte("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope\n"), 0o600), unix.Mount(fake, groups, "", unix.MS_BIND, "")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(groups, 0) })
	}
	var out bytes.Buffer
	err := Reach(t.Context(), []netip.AddrPort{v4}, connected, podCIDRs, &out)
	if err != nil || strings.Count(out.String(), `("sleep")`) != 2 || !strings.Contains(out.String(), "not from the pod of process") {
		t.Errorf("%v; %s", err, out.String())
	}
}

// startPod runs a program in a network namespace.
func startPod(t *testing.T, ns *os.File) (pid int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "sleep", "infinity")
	var startErr error
	if err := inside(ns, func() { startErr = cmd.Start() }); err != nil || startErr != nil {
		t.Fatal(err, startErr)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	return cmd.Process.Pid
}
