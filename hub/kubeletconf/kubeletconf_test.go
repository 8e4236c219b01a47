package kubeletconf

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFlagsOfKubelet(t *testing.T) {
	got := Flags([]string{"/usr/bin/kubelet", "--config=/etc/a.yaml", "--node-ip", "192.0.2.1", "--v", "--x=", "-y=1"})
	want := map[string]string{"config": "/etc/a.yaml", "node-ip": "192.0.2.1", "v": "", "x": "", "y": "1"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

// How files are merged: see cmd/edgehub/install/kubelet.
func TestTheConfigurationIsThatOfTheNodesKubelet(t *testing.T) {
	const own, user = "root\nUid:\t0\t0\t0\t0\n", "nobody\nUid:\t65534\t0\t0\t0\n" // of another one's setuid program
	type process struct{ line, status string }
	kubelet := process{"/usr/bin/kubelet\x00--config=/etc/kubelet.yaml\x00--root-dir\x00/kubelet\x00", own}
	for name, tt := range map[string]struct {
		processes map[string]process
		says      string // in the error; "" if its configuration is read
	}{
		"a kubelet":                     {map[string]process{"7": kubelet, "8": {"/usr/bin/other\x00", own}, "self": kubelet}, ""},
		"another one with other pods":   {map[string]process{"7": kubelet, "8": {"kubelet\x00--config=/none\x00", own}}, ""},
		"another one with the same":     {map[string]process{"7": kubelet, "8": kubelet}, "2 processes"},
		"somebody else's of that name":  {map[string]process{"7": {kubelet.line, user}}, "0 processes"},
		"none, or none that is visible": {map[string]process{"7": {"/usr/bin/k3s\x00agent\x00", own}}, "0 processes"},
		"one that is starting":          {map[string]process{"7": {"(kubelet)\x00", own}, "8": {"", own}}, "0 processes"},
		"a file that is gone":           {map[string]process{"7": {strings.Replace(kubelet.line, "kubelet.yaml", "gone.yaml", 1), own}}, "gone.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(path, text string) {
				t.Helper()
				path = filepath.Join(dir, path)
				err := os.MkdirAll(filepath.Dir(path), 0o700)
				if err == nil {
					err = os.WriteFile(path, []byte(text), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			write("node/etc/kubelet.yaml", "maxPods: 7\n")
			write("node/kubelet/pods/x", "")
			write("node/var/lib/kubelet/pods/x", "")
			for pid, p := range tt.processes {
				write("proc/"+pid+"/cmdline", p.line)
				write("proc/"+pid+"/status", "Name:\t"+p.status)
				if err := os.Symlink(filepath.Join(dir, "node"), filepath.Join(dir, "proc", pid, "root")); err != nil {
					t.Fatal(err)
				}
			}
			var got struct {
				MaxPods int `json:"maxPods"`
			}
			// The hub may have the folder elsewhere.
			if err := os.Symlink(filepath.Join(dir, "node", "kubelet"), filepath.Join(dir, "mine")); err != nil {
				t.Fatal(err)
			}
			err := ReadRunning(filepath.Join(dir, "proc"), filepath.Join(dir, "mine"), &got)
			if (got.MaxPods == 7) != (tt.says == "") || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
