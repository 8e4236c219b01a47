package kubeadm

import (
	"os"
	"testing"

	"github.com/edgehub-io/edgehub/test/install/machine"
)

func TestMain(m *testing.M) {
	machine.BecomeInit()
	os.Exit(m.Run())
}
