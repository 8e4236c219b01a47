package kubeadm

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// flows counts established connections from the edge node to the apiserver by who has them.
type flows struct{ hub, programs, pods int }

func (f flows) String() string {
	return fmt.Sprintf("the hub has %d, other programs of the node %d, pods with their own network %d", f.hub, f.programs, f.pods)
}

// origin is the connection's own source: a pod's address, before it is translated.
var origin = regexp.MustCompile(`ESTABLISHED src=(\S+) `)

// flows asks the kernel for the sockets of the node's own network, and its connection tracking
// for those that it forwards: pods' connections pass through.
func (c *Cluster) flows(ctx context.Context) (flows, error) {
	m := c.machines[edge]
	// A program with the node's network that connects to the Service's address keeps it in its
	// socket. The proxy leads nowhere else.
	servers := "( dst = " + controlIP + ":6443 or dst = " + serviceIP + ":443 or dst = " + strings.TrimPrefix(siteProxy, "http://") + " )"
	sockets, err := m.Run(ctx, "ss", "--no-header", "--tcp", "--numeric", "--processes", "state", "established", servers)
	if err != nil {
		return flows{}, err
	}
	var f flows
	for line := range strings.Lines(sockets) {
		if strings.Contains(line, `"edgehub"`) {
			f.hub++
		} else if strings.TrimSpace(line) != "" {
			f.programs++
		}
	}
	tracked, err := m.Run(ctx, "conntrack", "--dump", "--proto=tcp", "--state=ESTABLISHED", "--reply-src="+controlIP)
	if err != nil {
		return flows{}, err
	}
	for _, match := range origin.FindAllStringSubmatch(tracked, -1) {
		if match[1] != edgeIP {
			f.pods++
		}
	}
	return f, nil
}
