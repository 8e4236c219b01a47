package kubelet

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestTheRuntimesEndpointIsFoundAsKubeletFindsIt(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := write("config.yaml", "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///config\n")
	silent := write("silent.yaml", "kind: KubeletConfiguration\n")
	write("d/10-cri.conf", "containerRuntimeEndpoint: unix:///ten\n")
	write("d/20-more/a.conf", `{"containerRuntimeEndpoint": "unix:///twenty"}`)
	write("d/30-other.conf", "maxPods: 10\n")
	write("d/40-ignored.yaml", "containerRuntimeEndpoint: unix:///forty\n")
	write("broken/a.conf", "}")
	parts := filepath.Join(dir, "d")
	for name, tt := range map[string]struct {
		flags map[string]string
		want  string // "" is an error
	}{
		"a flag":                       {map[string]string{"container-runtime-endpoint": "unix:///flag", "config": config, "config-dir": parts}, "unix:///flag"},
		"the configuration":            {map[string]string{"config": config}, "unix:///config"},
		"the last part, over it":       {map[string]string{"config": config, "config-dir": parts}, "unix:///twenty"},
		"a part alone":                 {map[string]string{"config-dir": parts}, "unix:///twenty"},
		"none of them":                 {map[string]string{"config": silent}, "unix:///run/containerd/containerd.sock"},
		"no configuration":             {nil, "unix:///run/containerd/containerd.sock"},
		"a part that cannot be read":   {map[string]string{"config-dir": filepath.Join(dir, "broken")}, ""},
		"a folder that there is not":   {map[string]string{"config-dir": filepath.Join(dir, "none")}, ""},
		"a configuration there is not": {map[string]string{"config": filepath.Join(dir, "none")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := (&Kubelet{Flags: tt.flags}).findEndpoint()
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestKubeletCallsItsNodeInSmallLetters(t *testing.T) {
	if got := (&Kubelet{Flags: map[string]string{"hostname-override": " Edge "}}).NodeName("other"); got != "edge" {
		t.Errorf("--hostname-override=Edge is %q", got)
	}
	if got := (&Kubelet{}).NodeName("edge"); got != "edge" {
		t.Errorf("without the flag: %q", got)
	}
}

func TestKubeletsProxyIsFound(t *testing.T) {
	got := proxyVariables([]string{"PATH=/bin", "HTTPS_PROXY=http://192.0.2.80:3128", "no_proxy=10.0.0.0/8", "HTTP_PROXY=", "MY_HTTPS_PROXY=x", ""})
	if want := []string{"HTTPS_PROXY=http://192.0.2.80:3128", "no_proxy=10.0.0.0/8"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
