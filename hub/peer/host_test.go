package peer

import (
	"strings"
	"testing"
)

// The control groups are those of real machines. ID, SHORT and UID stand for a container's ID, an ID
// that does not have 64 digits, and a pod's UID.
func TestControlGroupsOfHostsAndContainers(t *testing.T) {
	const (
		ofHost      = iota // whoever looks
		ofContainer        // whoever looks
		unknown            // a container's where systemd has started the hub, or else the host's
	)
	tests := map[string]map[string]int{
		"the host under systemd": {
			"/": ofHost, "/init.scope": ofHost,
			"/system.slice/kubelet.service": ofHost, "/system.slice/k3s.service": ofHost, "/system.slice/edgecore.service": ofHost,
			"/system.slice/snap.microk8s.daemon-kubelite.service": ofHost, "/system.slice/mykubepods.service": ofHost,
			"/kube.slice/kubelet.service": ofHost, "/runtime.slice/kubelet.service": ofHost, "/mykubepods.slice/kubelet.service": ofHost,
			"/system.slice/system-getty.slice/getty@tty1.service": ofHost, "/system.slice/ssh.service": ofHost, "/system.slice/cron.service": ofHost,
			"/user.slice/user-0.slice/session-3.scope": ofHost, "/user.slice/user-0.slice/session-c1.scope": ofHost,
			"/user.slice/user-0.slice/user@0.service/init.scope":                                 ofHost,
			"/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-77.scope": ofHost,
			"/user.slice/user-0.slice/user@0.service/tmux-spawn-" + uid + ".scope":               ofHost,
			"/user.slice/user-0.slice/user@0.service/app.slice/snap.kubectl.kubectl-77.scope":    ofHost,
			"/system.slice/run-r4f1d1d6a3e4c4d0d9f6a2b7f5f0e8c7d.scope":                          ofHost,
			"/system.slice/crio-conmon-ID.scope":                                                 ofHost,
		},
		"the host, one hierarchy of version 1": {"/user.slice": ofHost, "/system.slice": ofHost},
		"kubelet, in a group of its own": {
			"/kubelet": ofHost, "/podruntime/kubelet": ofHost, "/system": ofHost, "/systemd/system.slice": ofHost,
			"/systemd/user.slice/user-0.slice": ofHost, "/systemd/machine.slice": ofContainer, "/systemd/system.slice/ID": ofContainer,
			"/systemd/system.slice/web": unknown, "/systemd": unknown,
		},
		"the host without systemd": {"/openrc.kubelet": unknown, "/process_api/4f1d1d6a3e4c4d0d9f6a2b7f5f0e8c7d": unknown, "/c1": unknown},
		"pods": {
			"/kubepods/burstable/podUID/ID": ofContainer, "/kubepods/podUID/SHORT": ofContainer, "/kubepods/besteffort/podUID": ofContainer,
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID.slice/cri-containerd-ID.scope": ofContainer,
			"/kubepods.slice/kubepods-podUID.slice/crio-ID.scope":                                                ofContainer,
			"/kubepods.slice/kubepods-podUID.slice/crio-ID.scope/container":                                      ofContainer,
			"/kubepods.slice/kubepods-podUID.slice/crio-ID.scope/system.slice/a.service":                         ofContainer,
			"/kubepods.slice/kubepods-podUID.slice/crio-conmon-ID.scope":                                         ofContainer,
			"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podUID.slice/cri-containerd-ID.scope":        ofContainer,
			"/kubelet/kubepods/burstable/podUID/ID":                                                              ofContainer,
			"/system.slice/containerd.service/kubepods-burstable-podUID.slice:cri-containerd:ID":                 ofContainer,
			"/kubepods-burstable-podUID.slice:cri-containerd:SHORT":                                              ofContainer,
			"/k8s.io/SHORT": ofContainer, "/k8s.io/ID": ofContainer,
		},
		"Docker": {
			"/docker/ID": ofContainer, "/system.slice/docker-ID.scope": ofContainer, "/system.slice/docker-ID.scope/init.scope": ofContainer,
			"/docker/buildkit/SHORT": ofContainer, "/moby/ID": ofContainer, "/moby/SHORT": ofContainer,
			"/system.slice/docker-ID.scope/system.slice/a.service": ofContainer, "/my.slice/docker-ID.scope": ofContainer,
			"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope": ofContainer,
		},
		"nerdctl and ctr": {
			"/system.slice/nerdctl-ID.scope": ofContainer, "/system.slice/nerdctl-SHORT.scope": ofContainer, "/nerdctl/SHORT": ofContainer,
			"/default/ID": ofContainer, "/default/web": ofContainer, "/edge/web": unknown,
		},
		"runc and crun by hand": {
			"/user.slice/runc-web.scope": ofContainer, "/system.slice/crun-web.scope": ofContainer, "/web": unknown,
			"/user.slice/user-0.slice/web": ofContainer, "/user.slice/user-0.slice/session-3.scope/web": ofContainer,
		},
		"Podman": {
			"/machine.slice/libpod-ID.scope": ofContainer, "/machine.slice/libpod-ID.scope/container": ofContainer,
			"/machine.slice/machine-libpod_pod_ID.slice/libpod-ID.scope":               ofContainer,
			"/system.slice/web.service/libpod-payload-ID":                              ofContainer,
			"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope": ofContainer,
			"/libpod_parent/libpod-ID":                                                 ofContainer,
		},
		"LXC":                {"/lxc.payload.web": ofContainer, "/lxc.payload.web/init.scope": ofContainer, "/lxc/web": ofContainer, "/lxc.payload/web": ofContainer},
		"Amazon ECS":         {"/ecs/task/SHORT": ofContainer, "/ecs/SHORT/SHORT-0527074092": ofContainer, "/ecstasks.slice/ecstasks-SHORT.slice/docker-ID.scope": ofContainer},
		"garden":             {"/garden/SHORT": ofContainer, "/system.slice/garden.service/garden/SHORT": ofContainer},
		"Firecracker":        {"/firecracker/SHORT": ofContainer},
		"Nomad":              {"/nomad.slice/share.slice/" + uid + ".web.scope": ofContainer, "/nomad/SHORT": ofContainer},
		"systemd-nspawn":     {"/machine.slice/machine-web.scope": ofContainer, "/system.slice/systemd-nspawn@web.service/payload": ofContainer, "/machine.slice/systemd-nspawn@web.service": ofContainer, "/system.slice/machine-web.scope": ofContainer, "/system.slice/my.service/payload/system.slice/a.service": ofContainer},
		"virtual machines":   {`/machine.slice/machine-qemu\x2d1\x2dweb.scope`: ofContainer},
		"names of no import": {"/x/ID": ofContainer, "/x/mykubepods": unknown, "/x/docker2": unknown},
	}
	fill := strings.NewReplacer("SHORT", "5f0e8c7d6b5a", "ID", id, ".slice/kubepods-podUID", ".slice/kubepods-pod"+underscored, "podUID.slice", "pod"+underscored+".slice", "UID", uid)
	for kind, groups := range tests {
		for group, whose := range groups {
			for own, want := range map[string]bool{
				"0::/system.slice/edgehub.service\n": whose != ofHost,
				"0::/\n":                             whose == ofContainer,
			} {
				_, is := inContainer(hosts(parsed(t, own)), parsed(t, "0::"+fill.Replace(group)+"\n"))
				if is != want {
					t.Errorf("%s: %s, seen from %q: in a container: %t, want %t", kind, group, own, is, want)
				}
			}
		}
	}
}
