package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/imagepull/engine"
)

// felix is a runtime with a Felix, and what Calico's manifests have that know of Typha.
type felix string

func (f felix) Environments(context.Context, ...string) ([]engine.Environment, error) {
	return []engine.Environment{{Values: map[string]string{"FELIX_TYPHAK8SSERVICENAME": string(f)}}}, nil
}

func TestAPodNetworkThatNeedsTheCloudIsNamed(t *testing.T) {
	const flannel, calico = `{"name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}`, `{"name": "k8s-pod-network", "plugins": [{"type": "calico", "ipam": {"type": "calico-ipam"}}, {"type": "portmap"}]}`
	const cilium, chained = `{"name": "cilium", "plugins": [{"type": "cilium-cni"}]}`, `{"plugins": [{"type": "flannel"}, {"type": "cilium-cni"}]}`
	const hostLocal = `{"plugins": [{"type": "calico", "ipam": {"type": "host-local"}}]}`
	for name, c := range map[string]struct {
		files map[string]string
		typha felix
		want  []string // one note each
	}{
		"flannel":                            {map[string]string{"10-flannel.conflist": flannel}, "", nil},
		"Calico":                             {map[string]string{"10-calico.conflist": calico}, "none", []string{"no pod gets an address"}},
		"Calico with the Node's CIDR":        {map[string]string{"10-calico.conflist": hostLocal}, "", nil},
		"Calico with the Node's CIDR, Typha": {map[string]string{"10-calico.conflist": hostLocal}, "calico-typha", []string{"Felix ends 30 s after Typha is lost"}},
		"Calico and Typha":                   {map[string]string{"10-calico.conflist": calico}, "calico-typha", []string{"no pod gets an address", "Typha"}},
		"Cilium":                             {map[string]string{"05-cilium.conf": `{"type": "cilium-cni"}`}, "", []string{"does not start without the cloud"}},
		"Cilium after another plugin":        {map[string]string{"05-chained.conflist": chained}, "", []string{"Cilium"}},
		"one that is not the first":          {map[string]string{"05-a.conf": `{"type": "bridge"}`, "05-cilium.conf": `{"type": "cilium-cni"}`}, "", nil},
		"one behind files of others":         {map[string]string{"00.txt": "", "01.conf": "{", "05-cilium.conf": `{"type": "cilium-cni"}`}, "", []string{"Cilium"}},
		"Multus and flannel":                 {map[string]string{"00-multus.conf": `{"type": "multus", "delegates": [` + flannel + `]}`, "10-calico.conflist": calico}, "", []string{"Multus"}},
		"Multus with Calico in it":           {map[string]string{"00-multus.conf": `{"type": "multus", "delegates": [` + calico + `]}`}, "", []string{"Multus", "no pod gets an address"}},
		"Multus that names Cilium's file":    {map[string]string{"00-multus.conf": `{"type": "multus-shim", "clusterNetwork": "/host/etc/cni/net.d/20-cilium.conflist"}`, "10-flannel.conflist": flannel, "20-cilium.conflist": cilium}, "", []string{"Multus", "Cilium"}},
		"Multus that names Calico's network": {map[string]string{"00-multus.conf": `{"type": "multus", "clusterNetwork": "k8s-pod-network"}`, "10-flannel.conflist": flannel, "20-calico.conflist": calico}, "", []string{"Multus", "no pod gets an address"}},
		"Multus that is told of none":        {map[string]string{"00-multus.conf": `{"type": "multus"}`, "10-calico.conflist": calico, "20-cilium.conflist": cilium}, "", []string{"Multus", "no pod gets an address"}},
		"none":                               {nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			(&checks{out: &out}).checkCNI(t.Context(), folder, c.typha)
			got := out.String()
			if strings.Count(got, "\n") != len(c.want) {
				t.Errorf("%d notes, not %d:\n%s", strings.Count(got, "\n"), len(c.want), got)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q does not say %q", got, want)
				}
			}
		})
	}
}
