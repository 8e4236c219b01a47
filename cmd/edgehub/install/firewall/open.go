package firewall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// chain has the rules for the hub's addresses, so that INPUT itself gets one rule.
const chain = "EDGEHUB"

// Unit is what a unit of systemd's, of type oneshot, needs to have the node's firewall accept TCP to the
// hub's servers from the node's pods, and to take that back.
type Unit struct {
	Services []string // of the firewall; those that the node has are to start the unit with them
	Follows  []string // lines of the section Unit
	Commands []string // lines of the section Service
}

// NewUnit returns the unit for the firewall that the node has. With firewalld the rule is part of its own
// permanent configuration, since what iptables accepts, firewalld still rejects. What loads rules of
// iptables or nftables does so in place of those that are there, and the unit's commands run again then.
// earlier is the unit as an earlier install has written it, if any: what was outside stays so, as a VPN
// that is down now.
func NewUnit(ctx context.Context, servers []netip.AddrPort, podCIDRs []string, earlier []byte) (u Unit, err error) {
	if firewalld(ctx) {
		// No PartOf: firewalld has the rule whenever it runs.
		u.Services = []string{"firewalld.service"}
		u.Commands, err = firewalldLines(servers, podCIDRs)
		return u, err
	}
	interfaces, err := outside(ctx)
	if err != nil {
		return u, err
	}
	for _, match := range returns.FindAllSubmatch(earlier, -1) {
		interfaces = append(interfaces, string(match[1]))
	}
	slices.Sort(interfaces) // the kernel's order may be another after the next boot
	interfaces = slices.Compact(interfaces)
	for _, server := range servers {
		program, err := exec.LookPath(iptables(server.Addr()))
		if err != nil {
			return u, fmt.Errorf("--open-firewall takes iptables, ip6tables for IPv6, or firewalld; where nftables' own rules are the firewall, add one by hand: %w", err)
		}
		u.Commands = append(u.Commands, iptablesLines(program, server, interfaces)...)
	}
	for _, line := range u.Commands {
		if command, ok := strings.CutPrefix(line, "ExecStart="); ok {
			u.Commands = append(u.Commands, "ExecReload="+command)
		}
	}
	// Without firewalld.service, which conflicts with some of these: a restart of it would both restart
	// and stop the unit, which systemd refuses.
	u.Services = []string{"ufw.service", "nftables.service", "iptables.service", "ip6tables.service", "netfilter-persistent.service"}
	all := strings.Join(u.Services, " ")
	u.Follows = []string{"PartOf=" + all, "ReloadPropagatedFrom=" + all}
	return u, nil
}

// returns is a line of iptablesLines with an interface to the outside.
var returns = regexp.MustCompile(` -i (\S+) -j RETURN\n`)

func iptables(address netip.Addr) string {
	if address.Is6() {
		return "ip6tables"
	}
	return "iptables"
}

// iptablesLines accept what does not come from the outside. The link-local addresses do not keep
// others away: Linux accepts packets for any of its addresses on any interface.
func iptablesLines(program string, server netip.AddrPort, outside []string) []string {
	jump := fmt.Sprintf(" INPUT -d %s -p tcp --dport %d -j %s", server.Addr(), server.Port(), chain)
	start, stop := "ExecStart="+program+" -w ", "ExecStopPost=-"+program+" -w "
	lines := []string{"ExecStart=-" + program + " -w -N " + chain, start + "-F " + chain} // it may be there, with all that was saved
	for _, name := range outside {
		lines = append(lines, start+"-A "+chain+" -i "+name+" -j RETURN")
	}
	return append(lines,
		start+"-A "+chain+" -j ACCEPT",
		"ExecStart=-"+program+" -w -D"+jump, start+"-I"+jump,
		stop+"-D"+jump, stop+"-F "+chain, stop+"-X "+chain)
}

// firewalldLines accept what comes from pods, by their addresses: a zone's rules cannot leave out an
// interface. A host that pretends to such an address gets no answer, for that goes to the pods.
// firewalld may be stopped when the rule is taken back: firewall-offline-cmd does it then.
func firewalldLines(servers []netip.AddrPort, podCIDRs []string) ([]string, error) {
	program, err := exec.LookPath("firewall-cmd")
	if err != nil {
		return nil, err
	}
	var start, stop []string
	for _, server := range servers {
		cidr, ok := podCIDR(server.Addr(), podCIDRs)
		if !ok {
			return nil, fmt.Errorf("--open-firewall: firewalld needs the addresses of pods, and the Node has no podCIDR for %s: by hand, firewall-cmd --permanent '--add-rich-rule=%s' and the same without --permanent", server.Addr(), richRule(server, "POD-CIDR"))
		}
		rule := "-rich-rule=" + richRule(server, cidr.String()) + "'"
		for _, permanent := range []string{"--permanent ", ""} {
			start = append(start, "ExecStart="+program+" --quiet "+permanent+"'--add"+rule)
			stop = append(stop, "ExecStopPost=-"+program+" --quiet "+permanent+"'--remove"+rule)
		}
		if offline, err := exec.LookPath("firewall-offline-cmd"); err == nil {
			stop = append(stop, "ExecStopPost=-"+offline+" --quiet '--remove"+rule)
		}
	}
	return append(start, stop...), nil
}

func richRule(server netip.AddrPort, from string) string {
	family := "ipv4"
	if server.Addr().Is6() {
		family = "ipv6"
	}
	return fmt.Sprintf(`rule family=%q source address=%q destination address=%q port port="%d" protocol="tcp" accept`, family, from, server.Addr(), server.Port())
}

// link is an interface as ip prints it.
type link struct {
	Name   string `json:"ifname"`
	Type   string `json:"link_type"`
	Master string `json:"master"`
	Info   struct {
		Kind string `json:"info_kind"`
	} `json:"linkinfo"`
}

// route is a route as ip prints it.
type route struct {
	Dev      string `json:"dev"`
	Nexthops []struct {
		Dev string `json:"dev"`
	} `json:"nexthops"`
}

// outside lists the interfaces by which others than this node's pods and programs send packets, those
// with a default route first.
func outside(ctx context.Context) ([]string, error) {
	var links []link
	var routes, routes6 []route
	err := errors.Join(ipJSON(ctx, &links, "-details", "link", "show"), ipJSON(ctx, &routes, "-4", "route", "show", "default"))
	if err != nil {
		return nil, err
	}
	_ = ipJSON(ctx, &routes6, "-6", "route", "show", "default") // an error where the kernel has no IPv6
	names := outsideOf(links, append(routes, routes6...))
	for _, name := range names {
		if !plainName.MatchString(name) {
			return nil, fmt.Errorf("the name of the interface %q cannot be written into a unit", name)
		}
	}
	return names, nil
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`)

// outsideOf lists interfaces with a default route, those that are not of a kind that pods are behind
// (hardware, VLANs, tunnels), and bridges that have one of these as a port.
func outsideOf(links []link, routes []route) []string {
	var names []string
	add := func(name string) {
		if name != "" && name != "lo" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, r := range routes {
		add(r.Dev)
		for _, hop := range r.Nexthops {
			add(hop.Dev)
		}
	}
	pods := []string{"veth", "bridge", "dummy", "openvswitch"} // the last: Antrea's and OVN's gateways
	for _, l := range links {
		if l.Type != "loopback" && !slices.Contains(pods, l.Info.Kind) {
			add(l.Name)
		}
	}
	for range links { // a bridge may be the port of another
		for _, l := range links {
			if slices.Contains(names, l.Name) {
				add(l.Master)
			}
		}
	}
	return names
}

func ipJSON(ctx context.Context, into any, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", append([]string{"-json"}, args...)...).Output()
	if err == nil && len(strings.TrimSpace(string(out))) > 0 { // nothing, for no routes
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		return fmt.Errorf("ip %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
