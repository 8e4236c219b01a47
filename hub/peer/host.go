package peer

import (
	"slices"
	"strings"
)

// host distinguishes, in one hierarchy, the groups of the host's programs from those of
// containers. It recognizes the host by the group of this process.
type host struct {
	own     []string // this process's group
	outer   []string // that of the container that the whole node runs in, as kind's do; or nil
	systemd bool     // below outer, systemd starts every program, and has a unit for each
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

// has reports whether a process in the group at path is the host's.
//
// Where systemd has started this process, it has started all of the host's programs, and
// only those in groups that are a unit of the host are the node's: a container runtime
// may choose any other group, and there are too many runtimes to know what each chooses.
// Elsewhere, also outside of a container that the whole node runs in, nothing is known of
// the host's own groups (they have as many names as there are programs that start others),
// and only groups that are known for containers are refused.
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
	for len(path) > 0 && path[0] == ".." { // out of this control group namespace
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

// isKubelets reports whether kubelet makes this group for programs of the node: for itself
// (--kubelet-cgroups, which k3s sets to /systemd and the slices that it was started in) or
// for all programs that are in the root group (--system-cgroups).
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

// isHostUnit reports whether path is that of a service, or of a scope for a login or a
// command, in slices that are not for containers. In version 1 it may end with a slice.
//
// A group below a service is not the host's: a service that makes groups of its own, as
// garden, systemd-nspawn and podman's do, makes them for containers. The manager of a
// user's services is an exception: it has units below it.
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

// isHostScope reports whether the scope is not a container's but one of systemd itself,
// a login, systemd-run --scope, a desktop or terminal, snapd, or the program that
// monitors a container of CRI-O or Podman. All container runtimes make scopes, and no
// services, named after the runtime and the container.
func isHostScope(name string) bool {
	for _, prefix := range [...]string{"init.scope", "session-", "run-", "app-", "tmux-spawn-", "vte-spawn-", "snap.", "crio-conmon-", "libpod-conmon-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// isParent reports whether the group holds nothing but containers, whatever their
// groups are called.
func isParent(name string) bool {
	switch name {
	case "buildkit", "default", "docker", "ecs", "firecracker", "garden", "k8s.io", "kubepods", "libpod_parent", "lxc",
		"lxc.payload", "machine", "mesos", "moby", "nerdctl", "nomad":
		return true
	}
	return false
}

// isContainer reports whether name, a single component of a path, is known to belong to a
// container, or to a group of containers.
func isContainer(name string) bool {
	if slice, ok := strings.CutSuffix(name, ".slice"); ok { // kubelet-kubepods.slice is kubelet's with --cgroup-root
		parts := strings.Split(slice, "-")
		return parts[0] == "machine" || slices.Contains(parts, "kubepods") || containerID(slice) != ""
	}
	switch {
	case strings.HasSuffix(name, ".scope"):
		return !isHostScope(name)
	case strings.HasSuffix(name, ".service"):
		return strings.HasPrefix(name, "systemd-nspawn@")
	case strings.Contains(name, ":"): // SLICE:RUNTIME:ID, a name for systemd's driver that was given to cgroupfs's
		return slices.ContainsFunc(strings.Split(name, ":"), isContainer)
	}
	return isParent(name) || strings.HasPrefix(name, "lxc.payload.") || containerID(name) != ""
}
