package kubeadm

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/install/machine"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
)

// Each test has each step of the story come true, and removes the hub at the end. See [Story]. What one does to the
// node, the other leaves as it is.

// TestNodeIsAutonomousBehindAFirewall has the node refuse what comes in and was not asked for, a proxy stand
// between its own programs and the apiserver, and the cluster IP of the apiserver lead to the hub, with the
// cloud, too.
func TestNodeIsAutonomousBehindAFirewall(t *testing.T) {
	tell(t, Options{Firewall: true, Proxy: true, ClusterIP: true})
}

// TestNodeIsAutonomousAtAnotherAddress has flannel write the node's address while nobody takes it. Nothing stands between
// the node and the apiserver, and a proxy that does not answer is named to kube-proxy. At the end the node joins another cluster.
func TestNodeIsAutonomousAtAnotherAddress(t *testing.T) { tell(t, Options{Move: true, Rejoin: true}) }

func tell(t *testing.T, o Options) {
	t.Helper()
	machine.Need(t, "a kubeadm cluster on two machines with systemd")
	programs, err := hubproc.Programs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute) // the first one builds Kubernetes, and another may have the host
	defer cancel()
	o.Dir, o.Hub, o.Log = filepath.Join(t.TempDir(), "machines"), filepath.Join(programs, "edgehub"), os.Stderr
	c, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.logJournals(t)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	steps := append(Story(), Step{"edgehub uninstall puts everything back", (*Cluster).uninstall})
	if o.Rejoin {
		steps = append(steps, Step{"kubeadm reset and join with the hub installed: kubelet comes back behind it, in another cluster", (*Cluster).rejoin})
	}
	for _, step := range steps {
		if !t.Run(step.Name, func(t *testing.T) {
			if err := step.Run(c, t.Context(), t.Logf); err != nil {
				t.Fatal(err)
			}
		}) {
			return
		}
	}
}

func (c *Cluster) logJournals(t *testing.T) {
	t.Helper()
	for name, m := range c.machines {
		out, err := m.Run(context.Background(), "journalctl", "--no-pager", "--lines=100", "--output=short")
		t.Logf("the end of %s's journal: %v\n%s", name, err, out)
	}
}
