package leftovers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
	"github.com/edgehub-io/edgehub/test/install/machine"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

const productRoot = "../../.."

// victimVariable makes this program a run that is going to be killed.
const victimVariable = "EDGEHUB_TEST_VICTIM"

func TestMain(m *testing.M) {
	machine.BecomeInit()
	os.Exit(m.Run())
}

// TestVictim is no test: it starts what there is to be left, says so, and stays.
func TestVictim(t *testing.T) {
	if os.Getenv(victimVariable) == "" {
		return
	}
	dir, err := tempdir.Make("victim-test")
	if err != nil {
		t.Fatal(err)
	}
	hub, err := hubproc.Build(t.Context(), productRoot, dir.Path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(t.Context(), cluster.Options{Nodes: 1, HubBin: hub, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	runPod(t, c)
	if _, err := machine.Boot(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.StartContainerd(t.Context(), cluster.ContainerdOptions{}); err != nil {
		t.Fatal(err)
	}
	smalldisk.Mount(t, 1)
	// Nothing ends it with its parent, and it is in a group of its own: as a test binary is
	// of which only the go command was killed.
	orphan := exec.Command("sleep", "1000")
	orphan.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("up %d\n", orphan.Process.Pid)
	select {}
}

func runPod(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec:       corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Name: "app", Image: c.Image("v1")}}},
	}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(t.Context(), "wait", "--for=condition=Ready", "pod/app", "--timeout=120s"); err != nil {
		t.Fatal(err)
	}
}

// TestCleanRemovesWhatAKilledRunHasLeft kills a run with all its process group, and looks for
// what is left of it, and of others.
func TestCleanRemovesWhatAKilledRunHasLeft(t *testing.T) {
	machine.Need(t, "what a run leaves that was killed")
	temp, err := os.MkdirTemp("", "e") // short: there are sockets in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	t.Setenv("TMPDIR", temp)
	foreign := newForeign(t)
	before := traces(t)

	runDir, orphan := killedRun(t)
	t.Logf("left: %q", traces(t))
	out := clean(t)
	for _, kind := range []string{"process", "control group", "interface", "mount", "folder"} {
		if !strings.Contains(out, ": "+kind+" (") {
			t.Errorf("it reports no %s", kind)
		}
	}
	if after := traces(t); after != before {
		t.Errorf("before the run there were\n%s\nand now\n%s", before, after)
	}
	if lives(strconv.Itoa(orphan)) {
		t.Error("a process of the run lives that nothing had ended")
	}
	if left, _ := filepath.Glob(temp + "/edgehub-[^s]*"); len(left) > 0 {
		t.Errorf("left in %s: %v", temp, left)
	}
	if _, err := os.Stat(runDir); err == nil {
		t.Errorf("%s is left", runDir)
	}
	foreign.expectUntouched(t)
	if out := clean(t); !strings.Contains(out, "nothing was left") {
		t.Error("there was something to do for a second time")
	}
}

// killedRun starts a run and kills it, and returns its folder and the process that nothing
// has ended.
func killedRun(t *testing.T) (dir string, orphan int) {
	t.Helper()
	// The folder is nobody's as soon as its lock is released, as if this process had ended.
	run, err := NewRun()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestVictim$")
	cmd.Env = append(os.Environ(), victimVariable+"=1", run.Env())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	var all strings.Builder
	for lines := bufio.NewScanner(stdout); orphan == 0 && lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		_, _ = fmt.Sscanf(lines.Text(), "up %d", &orphan)
	}
	if orphan == 0 {
		t.Fatalf("the run does not come up:\n%s", all.String())
	}
	t.Cleanup(func() { _ = syscall.Kill(orphan, syscall.SIGKILL) })

	if out := clean(t); !strings.Contains(out, "nodes of a run that lives, left alone: "+os.Getenv("TMPDIR")) ||
		!strings.Contains(out, "machine of a run that lives, left alone: machine in ") || !strings.Contains(out, "nothing was left") {
		t.Error("it does not leave alone what lives")
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := run.dir.Release(); err != nil {
		t.Fatal(err)
	}
	return run.dir.Path, orphan
}

func clean(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	start := time.Now()
	if err := Clean(t.Context(), io.MultiWriter(&out, t.Output())); err != nil {
		t.Error(err)
	}
	t.Logf("that took %s", time.Since(start).Round(time.Millisecond))
	return out.String()
}

// traces are what the kernel has that carries edgehub's names, and the processes that are in
// its control groups, or work in the test's folder.
func traces(t *testing.T) string {
	t.Helper()
	script := `find /sys/fs/cgroup -type d -name 'edgehub*'; ls -d /sys/class/net/edgehub*; grep -e edgehub -e "$TMPDIR/" /proc/self/mounts
		for p in /proc/[0-9]*; do
			readlink $p/exe >/dev/null || continue # it is ending
			if grep -q -e '/edgehub[/-]' $p/cgroup || { [ $p != /proc/$$ ] && tr '\0' ' ' <$p/cmdline | grep -q -e "$TMPDIR/edgehub"; }; then cat $p/comm; fi
		done`
	out, _ := exec.Command("sh", "-c", script+" 2>/dev/null").Output()
	return string(out)
}

// foreign is what looks much like edgehub's, and is not.
type foreign struct {
	disk, folder string
	process      *exec.Cmd
	namespace    string
}

func newForeign(t *testing.T) *foreign {
	t.Helper()
	f := &foreign{disk: t.TempDir(), folder: filepath.Join(os.TempDir(), "edgehub-somebody"), namespace: fmt.Sprint("leftovers-test-", os.Getpid())}
	if err := syscall.Mount("tmpfs", f.disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(f.disk, 0) })
	if err := os.Mkdir(f.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "netns", "add", f.namespace).CombinedOutput(); err != nil {
		t.Fatalf("ip netns add: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "ip", "netns", "delete", f.namespace).Run() })
	// In a process and a mount namespace of its own, and at work in the folder.
	f.process = exec.Command("tail", "-f", "/dev/null", f.folder+"/log")
	f.process.Dir = f.folder
	f.process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if err := os.WriteFile(f.folder+"/log", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.process.Process.Kill(); _ = f.process.Wait(); _ = os.RemoveAll(f.folder) })
	return f
}

func (f *foreign) expectUntouched(t *testing.T) {
	t.Helper()
	if mounts, err := mountsBelow(f.disk); err != nil || len(mounts) != 1 {
		t.Errorf("mounted at %s: %v, %v", f.disk, mounts, err)
	}
	if out, _ := exec.Command("ip", "netns", "list").Output(); !strings.Contains(string(out), f.namespace) {
		t.Errorf("network namespaces: %s", out)
	}
	if err := f.process.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process: %v", err)
	}
	if _, err := os.Stat(f.folder); err != nil {
		t.Error(err)
	}
}
