package firewall

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// refused is a server of the hub's that pods do not reach.
type refused struct {
	server netip.AddrPort
	pods   string // the addresses of the node's pods, as rules name them
}

// unknownPods stands in a command for addresses that are not known.
const unknownPods = "POD-CIDR"

const (
	lasts = "A reboot keeps what these add."
	// doesNotLast is where it is not known what loads the rules at boot.
	doesNotLast = "A reboot does not keep what these add: put it into the file that your rules are loaded from, too."
)

// wayOut returns the rest of an error: the rule that probably refuses pods, the commands that let them in, and
// whether a reboot keeps what these add. root is "/", but for tests.
func wayOut(ctx context.Context, all []refused, root string) string {
	rule, chain := cause(ctx, all[0].server)
	if rule == "" {
		rule = "no rule of INPUT was found that could be the cause: see nft list ruleset, and what the CNI plugin does with packets from pods to the node"
	} else {
		rule = "probably by the rule " + rule
	}
	admit, after := firewallOf(ctx, chain, all[0].server, root)
	var text strings.Builder
	fmt.Fprintf(&text, "; %s\nThis lets the node's pods in; then install again:", rule)
	for _, r := range all {
		text.WriteString("\n  " + strings.Join(admit(r), "\n  "))
	}
	text.WriteString("\n" + after)
	if slices.ContainsFunc(all, func(r refused) bool { return r.pods == unknownPods }) {
		text.WriteString("\n" + unknownPods + " stands for the addresses of this node's pods, which are not the podCIDR of its Node.")
	}
	return text.String()
}

// firewallOf returns the commands by which the node's firewall lets pods in, and whether a reboot keeps that. What
// refuses in a chain of nftables' own refuses also what another chain has accepted, so that chain gets the rule.
func firewallOf(ctx context.Context, nftChain string, server netip.AddrPort, root string) (admit func(refused) []string, after string) {
	ufw, _ := exec.CommandContext(ctx, "ufw", "status").Output() // there may be none
	switch {
	case nftChain != "" && !strings.Contains(nftChain, " firewalld "):
		file := nftFile(root, nftChain, server)
		admit = func(r refused) []string {
			rule := fmt.Sprintf("'insert rule %[1]s %[2]s saddr %[3]s %[2]s daddr %[4]s tcp dport %[5]d accept'", nftChain, family(r.server), r.pods, r.server.Addr(), r.server.Port())
			if file == "" {
				return []string{"nft " + rule}
			}
			return []string{"nft " + rule, "echo " + rule + " >> " + file}
		}
		if file == "" {
			return admit, doesNotLast
		}
	case exec.CommandContext(ctx, "firewall-cmd", "--state").Run() == nil:
		admit = func(r refused) []string {
			rule := fmt.Sprintf(`'--add-rich-rule=rule family=%q source address=%q destination address=%q port port="%d" protocol="tcp" accept'`,
				map[string]string{"ip": "ipv4", "ip6": "ipv6"}[family(r.server)], r.pods, r.server.Addr(), r.server.Port())
			return []string{"firewall-cmd --permanent " + rule, "firewall-cmd " + rule}
		}
	case strings.Contains(string(ufw), "Status: active"):
		admit = func(r refused) []string {
			return []string{fmt.Sprintf("ufw allow proto tcp from %s to %s port %d", r.pods, r.server.Addr(), r.server.Port())}
		}
	default:
		return func(r refused) []string {
			return []string{fmt.Sprintf("%stables -I INPUT -s %s -d %s -p tcp --dport %d -j ACCEPT", family(r.server), r.pods, r.server.Addr(), r.server.Port())}
		}, doesNotLast
	}
	return admit, lasts
}

// family is nftables' word for an address' family, with which the name of iptables' program begins.
func family(server netip.AddrPort) string {
	if server.Addr().Is4() {
		return "ip"
	}
	return "ip6"
}

// nftFile returns the file from which nftables.service loads a chain at boot, or "" if it is not known to.
func nftFile(root, chain string, server netip.AddrPort) string {
	if enabled, _ := filepath.Glob(root + "/etc/systemd/system/*.wants/nftables.service"); len(enabled) == 0 {
		return ""
	}
	for _, file := range []string{"/etc/nftables.conf", "/etc/sysconfig/nftables.conf"} { // Debian's, and RHEL's
		content, _ := os.ReadFile(filepath.Join(root, file))
		if _, loaded := nftRule(string(content), server); loaded == chain {
			return file
		}
	}
	return ""
}
