package peer

import (
	"slices"
	"strings"
	"testing"
)

const (
	id  = "4f1d1d6a3e4c4d0d9f6a2b7f5f0e8c7d6b5a49382716054f3e2d1c0b9a887766"
	uid = "8a7b1c2d-0e1f-4a5b-8c6d-7e8f9a0b1c2d"
)

var underscored = strings.ReplaceAll(uid, "-", "_")

// Whose group is whose is tested with TestControlGroupsOfHostsAndContainers; here, which container and pod it is of, and as
// seen from which hub.
func TestInContainer(t *testing.T) {
	const v1Host = "12:memory:/\n3:cpu,cpuacct:/user.slice\n1:name=systemd:/user.slice/user-0.slice/session-1.scope\n"
	tests := map[string]struct {
		own, groups string
		want        bool
		id, pod     string
	}{
		"a login, version 1": {groups: v1Host},
		"a pod, systemd's driver, containerd": {
			groups: "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + underscored + ".slice/cri-containerd-" + id + ".scope\n",
			want:   true, id: id, pod: uid,
		},
		"a guaranteed pod, systemd's driver, CRI-O": {
			groups: "0::/kubepods.slice/kubepods-pod" + underscored + ".slice/crio-" + id + ".scope\n", want: true, id: id, pod: uid,
		},
		"a pod, cgroupfs driver": {groups: "0::/kubepods/burstable/pod" + uid + "/" + id + "\n", want: true, id: id, pod: uid},
		"a static pod": {
			groups: "0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" + id + "\n", want: true, id: id, pod: "0123456789abcdef0123456789abcdef",
		},
		"a pod's container that has groups of its own": {groups: "0::/kubepods/pod" + uid + "/" + id + "/user.slice/a\n", want: true, id: id, pod: uid},
		"a pod's container that has groups named like another pod's": {
			groups: "0::/kubepods/pod" + uid + "/" + id + "/kubepods/pod" + strings.Repeat("0", 32) + "/x\n", want: true, id: id, pod: uid,
		},
		"a container of Docker's that has groups named like a pod's": {groups: "0::/docker/" + id + "/kubepods/pod" + uid + "\n", want: true, id: id},
		"a pod below kubelet's --cgroup-root": {
			groups: "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + underscored + ".slice\n", want: true, pod: uid,
		},
		"a pod without kubelet's groups, containerd":                             {groups: "0::/k8s.io/" + id + "\n", want: true, id: id},
		"Docker, systemd's driver":                                               {groups: "0::/system.slice/docker-" + id + ".scope\n", want: true, id: id},
		"Docker, cgroupfs driver":                                                {groups: "0::/docker/" + id + "\n", want: true, id: id},
		"Podman":                                                                 {groups: "0::/machine.slice/libpod-" + id + ".scope/container\n", want: true, id: id},
		"one hierarchy of version 1":                                             {groups: v1Host + "5:pids:/kubepods/besteffort/pod" + uid + "/" + id + "\n", want: true, id: id, pod: uid},
		"version 1 says it, version 2 of a hybrid not":                           {groups: "5:pids:/kubepods/pod" + uid + "\n0::/\n", want: true, pod: uid},
		"a container that was removed":                                           {groups: "0::/kubepods/pod" + uid + "/" + id + " (deleted)\n", want: true, id: id, pod: uid},
		"a pod, seen from a control group namespace":                             {groups: "0::/../../kubepods/pod" + uid + "\n", want: true, pod: uid},
		"a unit, seen from a control group namespace":                            {groups: "0::/../kubelet.service\n"},
		"63 digits are no ID":                                                    {groups: "0::/x/" + id[1:] + "\n"},
		"65 digits are no ID":                                                    {groups: "0::/x/a" + id + "\n"},
		"a name with colons":                                                     {groups: "0::/kubepods:docker:" + id + "\n", want: true, id: id},
		"a node that runs in a container: its kubelet":                           {own: "0::/docker/" + id + "/system.slice/edgehub.service\n", groups: "0::/docker/" + id + "/system.slice/kubelet.service\n"},
		"a node that runs in a container: its pod":                               {own: "0::/docker/" + id + "/system.slice/edgehub.service\n", groups: "0::/docker/" + id + "/kubelet/kubepods/pod" + uid + "\n", want: true, id: id, pod: uid},
		"a node that runs in a container: its host":                              {own: "0::/docker/" + id + "/init\n", groups: "0::/system.slice/cron.service\n"},
		"a node that runs in a container: another":                               {own: "0::/docker/" + id + "/init\n", groups: "0::/docker/f" + id[1:] + "/init\n", want: true, id: "f" + id[1:]},
		"the hub is in a pod: kubelet":                                           {own: "0::/kubepods/pod" + uid + "/" + id + "\n", groups: "0::/system.slice/kubelet.service\n"},
		"the hub is in a pod: the pod's other container":                         {own: "0::/kubepods/pod" + uid + "/" + id + "\n", groups: "0::/kubepods/pod" + uid + "/f" + id[1:] + "\n", want: true, id: "f" + id[1:], pod: uid},
		"a node with a control group namespace of its own: who starts it":        {own: "0::/system.slice/edgehub.service\n", groups: "0::/../process_api/web\n"},
		"a node with a control group namespace of its own: another beside it":    {own: "0::/system.slice/edgehub.service\n", groups: "0::/../" + id + "/system.slice/a.service\n", want: true, id: id},
		"a node that runs in a container, under systemd: who starts it":          {own: "0::/node1/system.slice/edgehub.service\n", groups: "0::/process_api/web\n"},
		"a node that runs in a container, under systemd: a container made in it": {own: "0::/node1/system.slice/edgehub.service\n", groups: "0::/node1/edge/web\n", want: true},
		"the hub's container counts in its own hierarchy alone": {
			own: "1:cpu:/docker/" + id + "\n2:pids:/\n", groups: "1:cpu:/docker/" + id + "\n2:pids:/docker/" + id + "\n", want: true, id: id,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			own := []membership{{}}
			if tt.own != "" {
				own = parsed(t, tt.own)
			}
			got, is := inContainer(hosts(own), parsed(t, tt.groups))
			if is != tt.want || got.ID != tt.id || got.Pod != tt.pod {
				t.Errorf("got %t, container %q of pod %q", is, got.ID, got.Pod)
			}
		})
	}
}

func parsed(t *testing.T, text string) []membership {
	t.Helper()
	all, err := parseCgroups(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMalformedControlGroupsAreRejected(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                    "",
		"an empty line":              "\n",
		"no path":                    "0::\n",
		"a path from nowhere":        "0::kubepods\n",
		"two fields":                 "0:/\n",
		"a good line and a torn one": "1:cpu:/\n2:pi",
	} {
		t.Run(name, func(t *testing.T) {
			if all, err := parseCgroups(text); err == nil {
				t.Errorf("read as %v", all)
			}
		})
	}
}

// FuzzCgroups checks, for any path, that a process in a group of kubelet's pods, or with a
// container's ID, is in a container, unless the whole node is in that container, and that a process
// is in no container as seen from itself.
func FuzzCgroups(f *testing.F) {
	f.Add("0::/", "1:cpu:/a b\n0::/kubepods.slice/x")
	f.Add("0::/docker/"+id, "0::/docker/"+id+"/system.slice/kubelet.service")
	f.Add("3:cpu,cpuacct:/", "3:cpu,cpuacct:/../kubepods (deleted)\n")
	f.Add("0::/system.slice/edgehub.service", "0::/system.slice/garden.service/garden/x")
	f.Fuzz(func(t *testing.T, own, text string) {
		groups, err := parseCgroups(text)
		if err != nil {
			return
		}
		in, is := inContainer(nil, groups)
		if is && in.Group == "" {
			t.Errorf("%q is in a container without a group", text)
		}
		named := slices.ContainsFunc(groups, func(m membership) bool {
			return slices.ContainsFunc(m.path, func(name string) bool { return name == "kubepods" || name == "kubepods.slice" || name == id })
		})
		if named && !is {
			t.Errorf("%q is in no container", text)
		}
		mine, err := parseCgroups(own)
		if err != nil {
			return
		}
		if _, is := inContainer(hosts(mine), mine); is && len(hosts(mine)) == len(mine) {
			t.Errorf("%q is in a container as seen from itself", own)
		}
		systemd := hosts(parsed(t, "0::/system.slice/edgehub.service"))
		if _, strictly := inContainer(systemd, groups); is && !strictly {
			t.Errorf("%q is in a container, but not where systemd is known to have started the hub", text)
		}
	})
}
