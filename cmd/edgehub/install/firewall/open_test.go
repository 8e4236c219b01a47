package firewall

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhichInterfacesAreOutside(t *testing.T) {
	of := func(name, kind, master string) link {
		l := link{Name: name, Type: "ether", Master: master}
		l.Info.Kind = kind
		return l
	}
	lo := link{Name: "lo", Type: "loopback"}
	for name, tt := range map[string]struct {
		links  []link
		routes []route
		want   []string
	}{
		"hardware; pods are behind flannel's bridge": {[]link{lo, of("eth0", "", ""), of("cni0", "bridge", ""), of("veth1", "veth", "cni0"), of("edgehub-dummy0", "dummy", "")}, nil, []string{"eth0"}},
		"tunnels, to pods of other nodes or a VPN":   {[]link{lo, of("flannel.1", "vxlan", ""), of("tunl0", "ipip", ""), of("wg0", "wireguard", ""), of("cali1", "veth", "")}, nil, []string{"flannel.1", "tunl0", "wg0"}},
		"a bridge with a VLAN of hardware as a port": {[]link{lo, of("eth0", "", ""), of("br0", "bridge", ""), of("eth0.7", "vlan", "br0")}, nil, []string{"eth0", "eth0.7", "br0"}},
		"a veth with the default route":              {[]link{lo, of("eth0", "veth", ""), of("lxc1", "veth", "")}, []route{{Dev: "eth0"}}, []string{"eth0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outsideOf(tt.links, tt.routes); !slices.Equal(got, tt.want) {
				t.Errorf("%v, not %v", got, tt.want)
			}
		})
	}
}

// This is what nft prints of firewalld's table, and of a table for IPv6 alone, shortened.
const ruleset = `table inet firewalld {
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		iifname "lo" accept
		ct state invalid drop
		tcp dport 23 drop
		reject with icmpx admin-prohibited
	}
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy drop;
		reject with icmpx admin-prohibited
	}
}
table ip6 raw {
	chain in {
		type filter hook input priority filter; policy drop;
		ct state invalid drop
	}
}
`

func TestRulesOfIptables(t *testing.T) {
	const accepted = ":INPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\n"
	for name, tt := range map[string]struct{ save, want string }{
		"nothing refuses":              {accepted, ""},
		"a last REJECT":                {accepted + "-A INPUT -p tcp -m tcp --dport 22 -j DROP\n-A INPUT -j REJECT --reject-with icmp-port-unreachable\n", "-A INPUT -j REJECT --reject-with icmp-port-unreachable"},
		"DROP":                         {accepted + "-A INPUT -j DROP\n", "-A INPUT -j DROP"},
		"of the hub's port":            {accepted + "-A INPUT -p tcp -m multiport --dports 22,10268 -j DROP\n", "-A INPUT -p tcp -m multiport --dports 22,10268 -j DROP"},
		"the policy, and other states": {":INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate INVALID -j DROP\n-A INPUT -s 192.0.2.66/32 -j DROP\n", "-P INPUT DROP"},
		"of what is forwarded":         {accepted + "-A FORWARD -j DROP\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := iptablesRule(tt.save, v4.Port()); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOutcomes(t *testing.T) {
	for want, err := range map[string]error{
		"connection refused": unix.ECONNREFUSED, "no route to host": unix.EACCES, "no answer within": &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded},
	} {
		if got := outcome(fmt.Errorf("connect: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

func TestRulesOfNftables(t *testing.T) {
	if rule, chain := nftRule(ruleset, v4); rule != "reject with icmpx admin-prohibited" || chain != "inet firewalld filter_INPUT" {
		t.Errorf("IPv4: %q in %q", rule, chain)
	}
	if rule, chain := nftRule(ruleset, v6); rule != "policy drop" || chain != "ip6 raw in" {
		t.Errorf("IPv6: %q in %q", rule, chain)
	}
	if rule, _ := nftRule("", v4); rule != "" {
		t.Errorf("no rules: %q", rule)
	}
}

// firewalld's own program stands for it: what it is told is what matters.
func TestFirewalldKeepsTheRuleItself(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(folder+"/firewall-cmd", []byte("#!/bin/sh\n[ \"$1\" = --state ]\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if err := os.Symlink("firewall-cmd", folder+"/firewall-offline-cmd"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	u, err := NewUnit(t.Context(), []netip.AddrPort{v4}, podCIDRs, nil)
	if err != nil || len(u.Follows) != 0 {
		t.Fatal(u.Follows, err)
	}
	const rule = `rich-rule=rule family="ipv4" source address="10.244.1.0/24" destination address="169.254.2.1" port port="10268" protocol="tcp" accept'`
	program := folder + "/firewall-cmd --quiet "
	want := []string{
		"ExecStart=" + program + "--permanent '--add-" + rule, "ExecStart=" + program + "'--add-" + rule,
		"ExecStopPost=-" + program + "--permanent '--remove-" + rule, "ExecStopPost=-" + program + "'--remove-" + rule,
		"ExecStopPost=-" + folder + "/firewall-offline-cmd --quiet '--remove-" + rule,
	}
	if !slices.Equal(u.Commands, want) {
		t.Errorf("%s", strings.Join(u.Commands, "\n"))
	}
	if _, err := NewUnit(t.Context(), []netip.AddrPort{v4}, nil, nil); err == nil || !strings.Contains(err.Error(), "firewall-cmd --permanent") {
		t.Errorf("without a range of the pods': %v", err)
	}
}
