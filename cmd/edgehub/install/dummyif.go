package install

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// interfaceCommands returns what the socket's unit runs before it binds the addresses for pods. The
// interface outlives the unit, so that neither a restart nor an upgrade of the hub takes the
// addresses away; only an uninstall does. Of all that edgehub runs, these commands alone may
// change the node's network.
func (p *plan) interfaceCommands() (comment, commands string, err error) {
	if len(p.config.PodAddresses) == 0 {
		return "", "", nil
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		return "", "", errors.New("there is no program ip (package iproute2), which sets up the addresses at which pods reach the hub: install it, or use --kubelet-only")
	}
	name := p.options.DummyIfName
	lines := []string{fmt.Sprintf("ExecStartPre=-%s link add %s type dummy", ip, name)}
	for _, address := range p.config.PodAddresses {
		options := ""
		if address.Is6() {
			options = " nodad" // the address is bound at once
		}
		lines = append(lines, fmt.Sprintf("ExecStartPre=%s address replace %s/%d dev %s%s", ip, address, address.BitLen(), name, options))
	}
	lines = append(lines, fmt.Sprintf("ExecStartPre=%s link set %s up", ip, name), "CapabilityBoundingSet=CAP_NET_ADMIN")
	return "\n# Pods reach the hub at the addresses of " + name + ", which outlives this unit.", "\n" + strings.Join(lines, "\n"), nil
}

// removeInterface removes the interface of an install, if there is one.
func removeInterface(ctx context.Context, o *Options) error {
	if o.KubeletOnly || o.DummyIfName == "" {
		return nil
	}
	if exec.CommandContext(ctx, "ip", "link", "show", "dev", o.DummyIfName).Run() != nil {
		return nil // it is gone already
	}
	out, err := exec.CommandContext(ctx, "ip", "link", "delete", "dev", o.DummyIfName, "type", "dummy").CombinedOutput()
	if err != nil {
		return fmt.Errorf("remove the interface %s: %w: %s", o.DummyIfName, err, strings.TrimSpace(string(out)))
	}
	return nil
}
