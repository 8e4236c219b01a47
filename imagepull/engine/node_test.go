package engine

import (
	"slices"
	"testing"
)

func TestReadConfig(t *testing.T) {
	tests := map[string]struct{ text, snapshotter, hosts string }{
		"containerd 1.7":      {`{"containerd":{"snapshotter":"overlayfs"},"registry":{"configPath":"/etc/certs.d"}}`, "overlayfs", "/etc/certs.d"},
		"containerd 2":        {`{"containerd":{"defaultRuntimeName":"runc"},"cni":{}}`, "", ""},
		"nothing":             {"", "", ""},
		"something else":      {`{"containerd":"x"}`, "", ""},
		"something else yet":  {`[1]`, "", ""},
		"a future snapshoter": {`{"containerd":{"snapshotter":"new","more":1}}`, "new", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := readConfig(tt.text)
			if got.Containerd.Snapshotter != tt.snapshotter || got.Registry.ConfigPath != tt.hosts {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestSnapshotterAt(t *testing.T) {
	known := roots{snapshots: map[string]string{"overlayfs": "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs", "native": "/fast/native", "stargz": ""}}
	tests := map[string]struct{ folder, want string }{
		"where it is by default":            {"/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs", "overlayfs"},
		"where it was put":                  {"/fast/native/", "native"},
		"by the folder, if nobody tells":    {"/data/io.containerd.snapshotter.v1.btrfs", "btrfs"},
		"not at all":                        {"/somewhere", ""},
		"a snapshotter without a folder":    {"", ""},
		"not one that only sounds like one": {"/data/io.containerd.content.v1.content", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := known.snapshotterAt(tt.folder); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestHostsFolders(t *testing.T) {
	tests := map[string]struct {
		asked, said string
		want        []string
	}{
		"what is asked for comes first": {"/a", "/b", []string{"/a"}},
		"then what CRI has":             {"", "/b:/c", []string{"/b", "/c"}},
		"then CRI's defaults":           {"", "", []string{"/etc/containerd/certs.d", "/etc/docker/certs.d"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := hostsFolders(tt.asked, tt.said); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
