// Package install has edgehub install, upgrade and uninstall itself on a real machine: a
// systemd of its own as process 1, with the units as they are installed, and a real
// kubelet and containerd set up as kubeadm does. It takes root.
package install

import (
	"os"
	"testing"

	"github.com/edgehub-io/edgehub/test/install/machine"
)

func TestMain(m *testing.M) {
	machine.BecomeInit()
	runChecks()
	os.Exit(m.Run())
}
