package peer

import (
	"slices"
	"strings"
)

// host distinguishes, in one hierarchy, the groups of the host's programs from those of
// containers. It infers the host's groups from the group of this process.
type host struct {
	own     []string // group of this process
	outer   []string // group of the container that the whole node runs in, as with kind; nil: none
	systemd bool     // below outer, systemd starts all programs, each in a unit
}

func newHost(own []string) host {
	for i := range own {
		if isHostUnit(own[i:]) {
			return host{own: own, outer: own[:i], systemd: true}
		}
	}
	for i := len(own) - 1; i >= 0; i-- {
		if isContainer(own[i]) {
			return host{own: own, outer: own[:i+1]}
		}
	}
	return host{own: own}
}

// has reports whether a process in the group at path belongs to the host.
//
// If systemd has started this process, it has started all of the host's programs, and only
// groups that are units of the host belong to the host: a container runtime may choose any
// other group, and there are too many runtimes to know all their choices. Without systemd,
// and outside of a container that the whole node runs in, the names of the host's groups are
// unknown, since any program may create some. There, only groups that are known to be
// containers are refused.
func (h host) has(path []string) bool {
	if slices.Equal(path, h.own) {
		return true
	}
	systemd := h.systemd
	if len(path) >= len(h.outer) && slices.Equal(path[:len(h.outer)], h.outer) {
		path = path[len(h.outer):]
	} else {
		systemd = false
	}
	for len(path) > 0 && path[0] == ".." { // outside of this control group namespace
		path, systemd = path[1:], false
	}
	if len(path) == 0 {
		return true
	}
	if systemd || isUnit(path[0]) {
		return isHostUnit(path) || isKubelets(path)
	}
	return !slices.ContainsFunc(path, isContainer)
}

// isKubelets reports whether kubelet creates this group for programs of the node: for itself
// (--kubelet-cgroups, which k3s sets to /systemd and the slices that k3s was started in) or
// for the programs in the root group (--system-cgroups).
func isKubelets(path []string) bool {
	if path[0] == "systemd" {
		return isHostUnit(path[1:])
	}
	switch strings.Join(path, "/") {
	case "kubelet", "podruntime/kubelet", "system":
		return true
	}
	return false
}

func isUnit(name string) bool {
	return strings.HasSuffix(name, ".slice") || strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".scope")
}

// isHostUnit reports whether path is the group of a service, or of a scope for a login or a
// command, in slices that are not for containers. In version 1 it may end with a slice.
//
// A group below a service is not the host's: services that create groups, such as garden's,
// systemd-nspawn's and podman's, create them for containers. The manager of a user's
// services (user@UID.service) is an exception: it has units below it.
func isHostUnit(path []string) bool {
	for i, name := range path {
		switch last := i == len(path)-1; {
		case !isUnit(name) || isContainer(name):
			return false
		case strings.HasSuffix(name, ".slice"), strings.HasPrefix(name, "user@"), last:
		default:
			return false
		}
	}
	return len(path) > 0
}

// isHostScope reports whether a scope belongs not to a container but to systemd itself, a
// login, systemd-run --scope, a desktop or terminal, snapd, or the program that monitors a
// container of CRI-O or Podman. Container runtimes create scopes, never services, and name
// them after the runtime and the container.
func isHostScope(name string) bool {
	for _, prefix := range [...]string{"init.scope", "session-", "run-", "app-", "tmux-spawn-", "vte-spawn-", "snap.", "crio-conmon-", "libpod-conmon-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// isParent reports whether all groups below this one are containers, whatever their names.
func isParent(name string) bool {
	switch name {
	case "buildkit", "default", "docker", "ecs", "firecracker", "garden", "k8s.io", "kubepods", "libpod_parent", "lxc",
		"lxc.payload", "machine", "mesos", "moby", "nerdctl", "nomad":
		return true
	}
	return false
}

// isContainer reports whether name, one component of a path, is known to be a container, or
// a group of containers.
func isContainer(name string) bool {
	if slice, ok := strings.CutSuffix(name, ".slice"); ok { // with --cgroup-root, pods are in kubelet-kubepods.slice
		parts := strings.Split(slice, "-")
		return parts[0] == "machine" || slices.Contains(parts, "kubepods") || containerID(slice) != ""
	}
	switch {
	case strings.HasSuffix(name, ".scope"):
		return !isHostScope(name)
	case strings.HasSuffix(name, ".service"):
		return strings.HasPrefix(name, "systemd-nspawn@")
	case strings.Contains(name, ":"): // SLICE:RUNTIME:ID is for the systemd driver; the cgroupfs driver takes it literally
		return slices.ContainsFunc(strings.Split(name, ":"), isContainer)
	}
	return isParent(name) || strings.HasPrefix(name, "lxc.payload.") || containerID(name) != ""
}
