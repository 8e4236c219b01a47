package firewall

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

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

// Programs of the firewalls' names stand for them: that each takes its commands is tested on a machine (TestFirewalls).
func TestEachFirewallIsToldByItsOwnCommands(t *testing.T) {
	const nftChain, rule = "inet filter input", "'insert rule inet filter input ip saddr 10.244.1.0/24 ip daddr 169.254.2.1 tcp dport 10268 accept'"
	const conf = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n\t}\n}\n"
	rich := func(version int, pods, hub string) string {
		return fmt.Sprintf(`'--add-rich-rule=rule family="ipv%d" source address=%q destination address=%q port port="10268" protocol="tcp" accept'`, version, pods, hub)
	}
	for name, tt := range map[string]struct {
		program, says, chain string
		files                map[string]string // in /etc
		server               refused
		want                 []string
		after                string
	}{
		"firewalld": {
			"firewall-cmd", "running", "inet firewalld filter_INPUT", nil, refused{v4, "10.244.1.0/24"},
			[]string{"firewall-cmd --permanent " + rich(4, "10.244.1.0/24", "169.254.2.1"), "firewall-cmd " + rich(4, "10.244.1.0/24", "169.254.2.1")}, lasts,
		},
		"firewalld, IPv6": {
			"firewall-cmd", "running", "", nil, refused{v6, "fd00:10:244:1::/64"},
			[]string{"firewall-cmd --permanent " + rich(6, "fd00:10:244:1::/64", "fd00::2:1"), "firewall-cmd " + rich(6, "fd00:10:244:1::/64", "fd00::2:1")}, lasts,
		},
		"ufw": {"ufw", "Status: active", "", nil, refused{v4, "10.244.1.0/24"}, []string{"ufw allow proto tcp from 10.244.1.0/24 to 169.254.2.1 port 10268"}, lasts},
		"ufw that is not active": {
			"ufw", "Status: inactive", "", nil, refused{v6, "fd00:10:244:1::/64"},
			[]string{"ip6tables -I INPUT -s fd00:10:244:1::/64 -d fd00::2:1 -p tcp --dport 10268 -j ACCEPT"}, doesNotLast,
		},
		"nftables' own rules, from its service's file": {
			"ufw", "Status: active", nftChain, map[string]string{"nftables.conf": conf, "systemd/system/sysinit.target.wants/nftables.service": ""},
			refused{v4, "10.244.1.0/24"}, []string{"nft " + rule, "echo " + rule + " >> /etc/nftables.conf"}, lasts,
		},
		"the service is not enabled": {"ufw", "", nftChain, map[string]string{"nftables.conf": conf}, refused{v4, "10.244.1.0/24"}, []string{"nft " + rule}, doesNotLast},
		"its file has no such chain, and would not be loaded with the rule": {
			"ufw", "", nftChain, map[string]string{"nftables.conf": "table inet other {}\n", "systemd/system/sysinit.target.wants/nftables.service": ""},
			refused{v4, "10.244.1.0/24"}, []string{"nft " + rule}, doesNotLast,
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			t.Setenv("PATH", root)
			if err := os.WriteFile(filepath.Join(root, tt.program), []byte("#!/bin/sh\necho "+tt.says+"\n"), 0o755); err != nil { //nolint:gosec // a program
				t.Fatal(err)
			}
			for file, content := range tt.files {
				path := filepath.Join(root, "etc", file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			admit, after := firewallOf(t.Context(), tt.chain, tt.server.server, root)
			if got := admit(tt.server); !slices.Equal(got, tt.want) || after != tt.after {
				t.Errorf("%s\n%s", strings.Join(got, "\n"), after)
			}
		})
	}
}

func TestACommandWithoutThePodsAddressesSaysSo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	got := wayOut(t.Context(), []refused{{v4, unknownPods}, {v6, "fd00:10:244:1::/64"}}, t.TempDir())
	for _, want := range []string{"; no rule of INPUT was found", "\n  iptables -I INPUT -s POD-CIDR ", "\n  ip6tables -I INPUT -s fd00:10:244:1::/64 ", "\nPOD-CIDR stands for"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
}
