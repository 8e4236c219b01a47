package peer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// membership is one line of /proc/PID/cgroup: the group of a process in one hierarchy.
// Version 1 has one line per hierarchy, version 2 a single line, and a hybrid has both.
type membership struct {
	hierarchy string   // its controllers; empty for version 2
	path      []string // from the root of the reader's control group namespace
}

// parseCgroups parses /proc/PID/cgroup. A line that it does not understand is an error:
// if it were skipped, a container could count as the host.
func parseCgroups(text string) ([]membership, error) {
	var all []membership
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.SplitN(line, ":", 3) // hierarchy's number, controllers, path
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			return nil, fmt.Errorf("line %q is not ID:CONTROLLERS:/PATH", line)
		}
		path := strings.TrimSuffix(fields[2], " (deleted)")
		m := membership{hierarchy: fields[1]}
		for component := range strings.SplitSeq(path, "/") {
			if component != "" {
				m.path = append(m.path, component)
			}
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, errors.New("it is in no control group")
	}
	return all, nil
}

// Container describes a container by its control group.
type Container struct {
	Group string // the path
	ID    string // 64 hexadecimal digits, or empty
	Pod   string // the pod's UID, or empty
}

func (c Container) String() string {
	if c.Pod != "" {
		return "a container of the pod with UID " + c.Pod
	}
	if c.ID != "" {
		return "the container " + c.ID[:12]
	}
	return "a container, in control group " + c.Group
}

// hosts returns the host of each hierarchy, by its controllers.
func hosts(own []membership) map[string]host {
	all := map[string]host{}
	for _, m := range own {
		all[m.hierarchy] = newHost(m.path)
	}
	return all
}

// inContainer reports whether a process in these groups is in a container, and in which.
// It is in one if any hierarchy shows it there.
func inContainer(hosts map[string]host, groups []membership) (Container, bool) {
	for _, m := range groups {
		if !hosts[m.hierarchy].has(m.path) {
			return hosts[m.hierarchy].describe(m.path), true
		}
	}
	return Container{}, false
}

func (h host) describe(path []string) Container {
	c := Container{Group: "/" + strings.Join(path, "/"), Pod: h.pod(path)}
	for _, component := range path {
		if id := containerID(component); id != "" {
			c.ID = id
		}
	}
	return c
}

// pod returns the UID of the pod whose group has that at path below it; empty if kubelet has made none. The
// outermost group counts, since a container may make any groups below its own.
func (h host) pod(path []string) string {
	if len(path) > len(h.outer) && slices.Equal(path[:len(h.outer)], h.outer) {
		path = path[len(h.outer):]
	}
	first := slices.IndexFunc(path, isContainer)
	if first < 0 || !isKubepods(path[first]) {
		return ""
	}
	for _, component := range path[first:] {
		if uid := podUID(component); uid != "" {
			return uid
		}
	}
	return ""
}

// isKubepods reports whether kubelet's pods are below this group.
func isKubepods(name string) bool {
	return slices.Contains(strings.Split(strings.TrimSuffix(name, ".slice"), "-"), "kubepods")
}

const idLength = 64

// containerID returns the container ID in a group's name such as
// cri-containerd-ID.scope: a run of exactly 64 hexadecimal digits.
func containerID(component string) string {
	for rest := component; len(rest) >= idLength; {
		n := 0
		for n < len(rest) && isHex(rest[n]) {
			n++
		}
		if n == idLength {
			return rest[:n]
		}
		rest = rest[max(n, 1):]
	}
	return ""
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// podUID returns the pod's UID in a group's name such as podUID or
// kubepods-besteffort-podUID.slice. In slices it has underscores, since a dash separates
// parent slices there. The UID of a static pod is a hash.
func podUID(component string) string {
	name := strings.TrimSuffix(component, ".slice")
	if i := strings.LastIndex(name, "-pod"); i >= 0 {
		name = name[i+1:]
	}
	uid, ok := strings.CutPrefix(name, "pod")
	uid = strings.ReplaceAll(uid, "_", "-")
	const uidLength, hashLength = 36, 32
	if !ok || len(uid) != uidLength && len(uid) != hashLength {
		return ""
	}
	for i := range len(uid) {
		if !isHex(uid[i]) && uid[i] != '-' {
			return ""
		}
	}
	return uid
}
