package engine

import "testing"

func TestReadConfig(t *testing.T) {
	tests := map[string]struct{ text, snapshotter, hosts string }{
		"containerd 1.7 reports both":    {`{"containerd":{"snapshotter":"overlayfs"},"registry":{"configPath":"/etc/certs.d"}}`, "overlayfs", "/etc/certs.d"},
		"containerd 2 reports neither":   {`{"containerd":{"defaultRuntimeName":"runc"},"cni":{}}`, "", ""},
		"no configuration is reported":   {"", "", ""},
		"a field has another type":       {`{"containerd":"x"}`, "", ""},
		"the configuration is no object": {`[1]`, "", ""},
		"unknown fields are ignored":     {`{"containerd":{"snapshotter":"new","more":1}}`, "new", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := readConfig(tt.text)
			hosts := ""
			if got.Registry != nil {
				hosts = got.Registry.ConfigPath
			}
			if got.Containerd.Snapshotter != tt.snapshotter || hosts != tt.hosts {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestSnapshotterAt(t *testing.T) {
	known := roots{snapshots: map[string]string{"overlayfs": "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs", "native": "/fast/native", "stargz": ""}}
	tests := map[string]struct{ folder, want string }{
		"a snapshotter is at its default folder":        {"/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs", "overlayfs"},
		"a snapshotter is at a configured folder":       {"/fast/native/", "native"},
		"an unknown snapshotter is named by its folder": {"/data/io.containerd.snapshotter.v1.btrfs", "btrfs"},
		"another folder has no snapshotter":             {"/somewhere", ""},
		"no folder has no snapshotter":                  {"", ""},
		"another plugin's folder has no snapshotter":    {"/data/io.containerd.content.v1.content", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := known.snapshotterAt(tt.folder); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
