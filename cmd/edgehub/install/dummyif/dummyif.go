// Package dummyif is the dummy interface with the addresses at which a node's pods reach the hub.
//
// systemd sets it up, by commands in the unit of the hub's sockets, before it binds the addresses,
// and so before kubelet starts. It outlives that unit: neither a restart nor an upgrade of the hub
// takes the addresses away. Of all that edgehub runs, these commands alone may change the node's
// network; an install may have a wire to a network namespace of its own for some seconds (package firewall).
package dummyif

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// kinds are the kinds of interfaces that are suitable, the best first. Some kernels for devices
// have no dummies. A bridge without ports does the same, and CNI plugins need bridges anyway.
func kinds() []string { return []string{"dummy", "bridge"} }

// UnitLines returns what the unit of the sockets has to say, or nothing without addresses.
func UnitLines(ctx context.Context, name string, addresses []netip.Addr) ([]string, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		return nil, errors.New("there is no program ip (package iproute2), which sets up the addresses at which pods reach the hub: install it, or use --kubelet-only")
	}
	kind, err := kernelKind(ctx, ip)
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("ExecStartPre=-%s link add %s type %s", ip, name, kind)} // it is there after a restart
	for _, address := range addresses {
		options := ""
		if address.Is6() {
			options = " nodad" // the address is bound at once
		}
		lines = append(lines, fmt.Sprintf("ExecStartPre=%s address replace %s/%d dev %s%s", ip, address, address.BitLen(), name, options))
	}
	return append(lines, fmt.Sprintf("ExecStartPre=%s link set %s up", ip, name), "CapabilityBoundingSet=CAP_NET_ADMIN"), nil
}

// kernelKind returns the first of kinds that the kernel has. It tries in a network namespace of its
// own, which ends with the command.
func kernelKind(ctx context.Context, ip string) (string, error) {
	var errs []error
	for _, kind := range kinds() {
		cmd := exec.CommandContext(ctx, ip, "link", "add", "probe", "type", kind)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, err := cmd.CombinedOutput()
		if err == nil {
			return kind, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w: %s", kind, err, strings.TrimSpace(string(out))))
	}
	return "", fmt.Errorf("no interface for the addresses at which pods reach the hub can be set up; --kubelet-only does without: %w", errors.Join(errs...))
}

// Check returns an error if an interface of this name that is not edgehub's exists, or if
// another interface has one of the addresses. notes are about what may be intended. isOwn reports
// whether an earlier install has set the interface up.
func Check(ctx context.Context, name string, addresses []netip.Addr, isOwn bool) (notes []string, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	var errs []error
	for _, i := range interfaces {
		there, err := prefixes(&i)
		if err != nil {
			return nil, err
		}
		if i.Name == name {
			if !isOwn && !isLeftover(ctx, name, there, addresses) {
				errs = append(errs, fmt.Errorf("there is an interface %s, which is not edgehub's: choose another name with --dummy-if-name", name))
			}
			continue
		}
		note, err := overlap(i.Name, there, addresses)
		notes, errs = append(notes, note...), append(errs, err)
	}
	return notes, errors.Join(errs...)
}

// overlap compares the addresses with those of another interface.
func overlap(name string, there []netip.Prefix, addresses []netip.Addr) (notes []string, err error) {
	var errs []error
	for _, prefix := range there {
		for _, address := range addresses {
			switch {
			case prefix.Addr() == address:
				errs = append(errs, fmt.Errorf("%s is an address of the interface %s: choose others for pods with --dummy-if-ip", address, name))
			case prefix.Contains(address):
				notes = append(notes, fmt.Sprintf("%s is in the network %s of the interface %s: a host there with this address could no longer be reached; --dummy-if-ip chooses another", address, prefix.Masked(), name))
			}
		}
	}
	return notes, errors.Join(errs...)
}

func prefixes(i *net.Interface) ([]netip.Prefix, error) {
	list, err := i.Addrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", i.Name, err)
	}
	var all []netip.Prefix
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, prefix)
		}
	}
	return all, nil
}

// isLeftover reports whether an interface is one that an install has left that was killed: it has
// the addresses for pods, and no others.
func isLeftover(ctx context.Context, name string, there []netip.Prefix, addresses []netip.Addr) bool {
	own, foreign := false, false
	for _, p := range there {
		isOwn, isAutomatic := slices.Contains(addresses, p.Addr()), p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()
		own = own || isOwn
		foreign = foreign || !isOwn && !isAutomatic
	}
	return own && !foreign && isSuitable(ctx, name)
}

// isSuitable reports whether there is an interface of this name that UnitLines may have created.
func isSuitable(ctx context.Context, name string) bool {
	return slices.ContainsFunc(kinds(), func(kind string) bool {
		out, err := exec.CommandContext(ctx, "ip", "link", "show", "dev", name, "type", kind).Output()
		return err == nil && strings.Contains(string(out), name)
	})
}

// Remove removes the interface, if there is one of a kind that UnitLines creates.
func Remove(ctx context.Context, name string) error {
	if name == "" || !isSuitable(ctx, name) {
		return nil
	}
	out, err := exec.CommandContext(ctx, "ip", "link", "delete", "dev", name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("remove the interface %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
