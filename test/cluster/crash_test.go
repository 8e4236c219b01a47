package cluster_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// TestClusterWhoseProgramIsKilledEndsAndIsClearedAway is about a test that is
// killed, too. It is in this package because for a while it does leave traces,
// which the other tests look for.
func TestClusterWhoseProgramIsKilledEndsAndIsClearedAway(t *testing.T) {
	cluster.NeedRoot(t)
	dir := t.TempDir()
	program, hub := buildGo(t, ".", "./cmd/edgehub-cluster"), buildHub(t)
	before := takeInventory(t)
	up := exec.CommandContext(t.Context(), program, "up", "--nodes=1", "--dir="+dir, "--hub="+hub)
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = cluster.TakeDown(context.Background(), dir) })

	holder, err := strconv.Atoi(readFile(t, filepath.Join(dir, "lock")))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(holder, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	const patience = 2 * time.Minute
	for start := time.Now(); len(processes(t)) > len(before["process"]); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("after %s the node's processes still live: %s", patience, processes(t))
		}
	}
	if err := cluster.TakeDown(t.Context(), dir); err != nil {
		t.Error(err)
	}
	expectNoProcess(t, dir)
	before.compare(t, takeInventory(t))
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left in the folder: %v; want only lock and logs", left)
	}
}
