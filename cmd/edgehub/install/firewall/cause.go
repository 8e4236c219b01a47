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

// cause returns the rule or policy that most probably refuses input to the server, as one read of iptables' and one of
// nftables' rules shows it, and for one of nftables' own, which iptables does not change, its family, table and chain.
func cause(ctx context.Context, server netip.AddrPort) (rule, nftChain string) {
	program := family(server) + "tables-save"
	out, _ := exec.CommandContext(ctx, program, "-t", "filter").Output() // not there, or without this table
	if rule := iptablesRule(string(out), server.Port()); rule != "" {
		return fmt.Sprintf("%q (%s)", rule, program), ""
	}
	out, _ = exec.CommandContext(ctx, "nft", "list", "ruleset").Output()
	rule, nftChain = nftRule(string(out), server)
	if rule != "" {
		rule = fmt.Sprintf("%q of nftables' chain %s", rule, nftChain)
	}
	if nftChain == family(server)+" filter INPUT" {
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
