package nodeca

import (
	"crypto/x509"
	"net"
	"net/netip"
	"slices"
)

// Names are what a CA may sign certificates for.
type Names struct {
	DNS       []string
	Addresses []net.IP
	// Apart are further DNS names. Each has a certificate of its own, for the clients that ask for it.
	Apart []string
}

// NamesOf returns the names by which the pods of a node find its hub: those of the apiserver in a
// cluster, and the hub's addresses for pods.
func NamesOf(node string, hub []netip.Addr, apart []string) Names {
	n := Names{Apart: apart, DNS: []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", node,
	}}
	for _, address := range hub {
		n.Addresses = append(n.Addresses, net.IP(address.AsSlice()))
	}
	return n
}

// constraints returns the names that a CA's certificate constrains it to.
func constraints(cert *x509.Certificate) Names {
	n := Names{DNS: cert.PermittedDNSDomains}
	for _, network := range cert.PermittedIPRanges {
		n.Addresses = append(n.Addresses, network.IP)
	}
	return n
}

// with returns n with further addresses.
func (n Names) with(addresses []net.IP) Names {
	n.Addresses = slices.Clone(n.Addresses)
	for _, address := range addresses {
		if !n.hasAddress(address) {
			n.Addresses = append(n.Addresses, address)
		}
	}
	return n
}

func (n Names) hasAddress(address net.IP) bool {
	return slices.ContainsFunc(n.Addresses, address.Equal)
}

// and returns the names that are in both.
func (n Names) and(other Names) (both Names) {
	for _, name := range n.DNS {
		if slices.Contains(other.DNS, name) {
			both.DNS = append(both.DNS, name)
		}
	}
	for _, address := range n.Addresses {
		if other.hasAddress(address) {
			both.Addresses = append(both.Addresses, address)
		}
	}
	return both
}

// networks returns a network of one address for each address.
func networks(addresses []net.IP) []*net.IPNet {
	var list []*net.IPNet
	for _, ip := range addresses {
		if v4 := ip.To4(); v4 != nil {
			ip = v4
		}
		list = append(list, &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))})
	}
	return list
}

// names returns what a may sign certificates for.
func (a *authority) names() Names { return constraints(a.cert) }

// shared returns those of them that all older CAs may sign for, too.
func (a *authority) shared() Names {
	n := a.names()
	for _, cert := range a.older {
		n = n.and(constraints(cert))
	}
	return n
}

// covers reports whether a may sign for all names.
func (a *authority) covers(names Names) bool {
	own := a.names()
	for _, name := range slices.Concat(names.DNS, names.Apart) {
		if !slices.Contains(own.DNS, name) {
			return false
		}
	}
	return !slices.ContainsFunc(names.Addresses, func(address net.IP) bool { return !own.hasAddress(address) })
}
