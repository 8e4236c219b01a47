package firewall

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// wayOut returns the rest of an error: the rule that probably refuses pods, and what to do.
func wayOut(ctx context.Context, server netip.AddrPort, podCIDRs []string, opened bool) string {
	rule, chain := cause(ctx, server)
	if rule == "" {
		rule = "no rule of INPUT was found that could be the cause: see nft list ruleset, and what the CNI plugin does with packets from pods to the node"
	} else {
		rule = "probably by the rule " + rule
	}
	manual := byHand(ctx, server, podCIDRs, chain)
	switch {
	case chain != "" && !firewalld(ctx): // it refuses what another chain has accepted
		return fmt.Sprintf("; %s. --open-firewall does not change nftables' own rules; by hand, and in the file that they are loaded from: %s", rule, manual)
	case opened:
		return fmt.Sprintf("; %s. edgehub's own rule (--open-firewall) is not there or does not help: systemctl restart edgehub-firewall.service adds it again if it was flushed\nor by hand: %s", rule, manual)
	}
	return fmt.Sprintf("; %s. edgehub install --open-firewall adds a rule that accepts it\nor by hand: %s", rule, manual)
}

// cause returns the rule or policy that most probably refuses input to the server, and for one of
// nftables' own, which iptables does not change, its family, table and chain.
func cause(ctx context.Context, server netip.AddrPort) (rule, nftChain string) {
	for _, program := range []string{"iptables-save", "iptables-legacy-save"} {
		if server.Addr().Is6() {
			program = "ip6" + strings.TrimPrefix(program, "ip")
		}
		out, _ := exec.CommandContext(ctx, program, "-t", "filter").Output() // not there, or without this table
		if rule := iptablesRule(string(out), server.Port()); rule != "" {
			return fmt.Sprintf("%q (%s)", rule, program), ""
		}
	}
	out, _ := exec.CommandContext(ctx, "nft", "list", "ruleset").Output()
	rule, nftChain = nftRule(string(out), server)
	if rule != "" {
		rule = fmt.Sprintf("%q of nftables' chain %s", rule, nftChain)
	}
	if nftChain == family(server.Addr())+" filter INPUT" {
		nftChain = "" // iptables' own, though iptables-save may not show what nft has loaded into it
	}
	return rule, nftChain
}

var (
	// port is how a rule of iptables names ports.
	port = regexp.MustCompile(`--dports? \S+`)
	// others is in rules that are hardly about a new connection of a pod's: for single sources, or
	// packets in a state such as INVALID.
	others = regexp.MustCompile(` -s |state |saddr `)
)

// iptablesRule returns the last rule of INPUT that refuses and is not about other ports or packets, as
// iptables-save prints it, or the policy if that drops.
func iptablesRule(save string, to uint16) (rule string) {
	for line := range strings.Lines(save) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, ":INPUT DROP") {
			rule = "-P INPUT DROP"
		}
		refuses := (strings.Contains(line, " -j REJECT") || strings.Contains(line, " -j DROP")) && !others.MatchString(line)
		ports := port.FindString(line)
		if strings.HasPrefix(line, "-A INPUT ") && refuses && (ports == "" || strings.Contains(ports, strconv.Itoa(int(to)))) {
			rule = line
		}
	}
	return rule
}

// nftRule returns the last rule that refuses, or else the policy that drops, of a chain with the hook
// input and of the server's family, and the chain.
func nftRule(ruleset string, server netip.AddrPort) (rule, chain string) {
	foreign := "ip"
	if server.Addr().Is4() {
		foreign = "ip6"
	}
	var table, name string
	var input bool
	for line := range strings.Lines(ruleset) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) == 4 && words[0] == "table":
			table = words[1] + " " + words[2]
		case len(words) == 3 && words[0] == "chain":
			name, input = words[1], false
		case strings.Contains(line, "hook input"):
			input = !strings.HasPrefix(table, foreign+" ") && !strings.HasPrefix(table, "bridge ") && !strings.HasPrefix(table, "netdev ")
			if input && strings.Contains(line, "policy drop") {
				rule, chain = "policy drop", table+" "+name
			}
		case input && !strings.Contains(line, "dport") && !others.MatchString(line) && (strings.Contains(line, "reject") || strings.HasSuffix(line, "drop")):
			rule, chain = line, table+" "+name
		}
	}
	return rule, chain
}

// byHand returns the command that adds a rule to the firewall that the node has.
func byHand(ctx context.Context, server netip.AddrPort, podCIDRs []string, nftChain string) string {
	address, number := server.Addr(), server.Port()
	from := "POD-CIDR"
	if cidr, ok := podCIDR(address, podCIDRs); ok {
		from = cidr.String()
	}
	status, _ := exec.CommandContext(ctx, "ufw", "status").Output()
	uplink := "UPLINK"
	if interfaces, err := outside(ctx); err == nil && len(interfaces) > 0 {
		uplink = interfaces[0]
	}
	switch {
	case firewalld(ctx):
		rule := richRule(server, from)
		return fmt.Sprintf("firewall-cmd --permanent '%s'; firewall-cmd '%s'", "--add-rich-rule="+rule, "--add-rich-rule="+rule)
	case strings.Contains(string(status), "Status: active"):
		return fmt.Sprintf("ufw allow proto tcp from %s to %s port %d", from, address, number)
	case nftChain != "":
		return fmt.Sprintf("nft 'insert rule %s iifname != %q %s daddr %s tcp dport %d accept'", nftChain, uplink, family(address), address, number)
	}
	return fmt.Sprintf("%s -I INPUT ! -i %s -d %s -p tcp --dport %d -j ACCEPT", iptables(address), uplink, address, number)
}

// family is nftables' word for an address' family.
func family(address netip.Addr) string {
	if address.Is4() {
		return "ip"
	}
	return "ip6"
}

// firewalld reports whether firewalld runs.
func firewalld(ctx context.Context) bool {
	return exec.CommandContext(ctx, "firewall-cmd", "--state").Run() == nil
}
