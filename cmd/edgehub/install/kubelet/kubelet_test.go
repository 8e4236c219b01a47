package kubelet

import (
	"maps"
	"testing"
)

func TestFlagsOfKubelet(t *testing.T) {
	got := parseFlags([]string{"/usr/bin/kubelet", "--config=/etc/a.yaml", "--node-ip", "192.0.2.1", "--v", "--x=", "-y=1"})
	want := map[string]string{"config": "/etc/a.yaml", "node-ip": "192.0.2.1", "v": "", "x": "", "y": "1"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
