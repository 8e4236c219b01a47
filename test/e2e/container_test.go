package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// ownersTools is edgehubctl on a node, as the node's owner calls it.
type ownersTools struct {
	*edge
	folder string // of the program: everybody may read it
}

// newOwnersTools has edgehubctl where other users and containers can run it, too.
func newOwnersTools(t *testing.T, e *edge) ownersTools {
	t.Helper()
	folder, err := os.MkdirTemp("", "edgehubctl-") // t.TempDir is not for other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	program, err := os.ReadFile(filepath.Join(binaries, "edgehubctl"))
	if err != nil {
		t.Fatalf("%v (`make test-e2e` builds what is missing)", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "edgehubctl"), program, 0o755); err != nil { //nolint:gosec // see folder
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // see folder
		t.Fatal(err)
	}
	return ownersTools{e, folder}
}

// command is edgehubctl in the node's namespaces, where the socket and the logs are where a
// machine has them; enter are more arguments of nsenter.
func (o ownersTools) command(ctx context.Context, enter []string, args ...string) *exec.Cmd {
	in := append([]string{"--target", strconv.Itoa(o.node.ContainerdProcess().PID()), "--mount"}, enter...)
	cmd := exec.CommandContext(ctx, "nsenter", append(append(in, "--", o.folder+"/edgehubctl"), args...)...)
	cmd.Env = append(os.Environ(), "EDGEHUB_ADDRESS="+strings.TrimPrefix(o.node.APIURL(), "http://"))
	return cmd
}

// run returns what edgehubctl prints, and its exit code.
func (o ownersTools) run(enter []string, stdin string, args ...string) (out, errs string, code int) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	cmd := o.command(ctx, enter, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); !ended {
			o.t.Fatal(err)
		}
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// wants runs edgehubctl, and checks its exit code and parts of its output; "" is for none.
func (o ownersTools) wants(code int, out, errs string, args ...string) {
	o.t.Helper()
	gotOut, gotErrs, got := o.run(nil, "", args...)
	if got != code || !strings.Contains(gotOut, out) || !strings.Contains(gotErrs, errs) || (errs == "") != (gotErrs == "") {
		o.t.Errorf("edgehubctl %v: exit code %d, stdout %q, stderr %q, want %d, %q, %q", args, got, gotOut, gotErrs, code, out, errs)
	}
}

// lines is output that another goroutine reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), word)
}

// The owner of a node looks into its apps while the cloud is away.
func TestLogsExecAndRestartWithoutTheCloud(t *testing.T) {
	for _, node := range []string{"node1", "node2"} { // containerd's versions differ
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			o := newOwnersTools(t, newEdge(t, "containers-"+node, node))
			o.create("web", func(spec *corev1.PodSpec) {
				spec.Volumes = []corev1.Volume{{Name: "tools", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: o.folder}}}}
				spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "tools", MountPath: "/tools", ReadOnly: true}}
			})
			o.create("once", func(spec *corev1.PodSpec) { spec.RestartPolicy = corev1.RestartPolicyNever })
			o.create("polite", func(spec *corev1.PodSpec) { spec.RestartPolicy = corev1.RestartPolicyOnFailure })
			before, once := o.running("web"), o.running("once")
			o.running("polite")
			o.cut("refused")
			pod := o.ns + "/web"

			o.wants(0, "serving at :8080\n", "", "logs", pod)
			o.wants(4, "", "has no previous run", "logs", "--previous", pod)
			o.exec(pod)
			o.terminal(pod)
			o.refused(pod)
			o.restart(pod, before)
			o.notRestarted(once)
			o.wants(0, "serving at :8080\n", "", "logs", "--previous", "--tail=1", "-c", "app", pod)
			o.wants(2, "", `has no container "other"; it has: app (running)`, "restart", "-c", "other", pod)
			o.wants(1, "", "no pod "+o.ns+"/other runs on this node", "logs", o.ns+"/other")

			if err := o.node.Link().Up(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the cloud counts one restart", func(context.Context) string {
				if n := o.running("web").pod.Status.ContainerStatuses[0].RestartCount; n != 1 {
					return "it counts " + strconv.Itoa(int(n))
				}
				return ""
			})
		})
	}
}

func (o ownersTools) exec(pod string) {
	o.t.Helper()
	o.wants(0, "v1\n", "", "exec", pod, "--", "/app", "version")
	big := strings.Repeat("0123456789\x1b\x00\xff\n", 100_000)
	if out, errs, code := o.run(nil, big, "exec", "-i", pod, "--", "/app", "cat"); out != big || errs != "" || code != 0 {
		o.t.Errorf("cat: exit code %d, %d bytes of %d, stderr %q", code, len(out), len(big), errs)
	}
	// The app's own words, and its exit code.
	o.wants(1, "", "app v1: this version crashes at its start, on purpose\n", "exec", pod, "--", "/app", "--crash")
	o.wants(2, "", "unknown command", "exec", pod, "--", "/tools/edgehubctl", "nothing")
	o.wants(1, "", "error: run a command in container app of pod "+pod, "exec", pod, "--", "/nothing")
}

// terminal types at a command that has a terminal: what its kernel echoes and what it copies comes back, and
// Ctrl-D is the end of its input, not of edgehubctl's.
func (o ownersTools) terminal(pod string) {
	o.t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	defer keys.Close()
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	defer tty.Close()
	screen := &lines{}
	go func() { _, _ = io.Copy(screen, keys) }() // until both are closed
	cmd := o.command(o.t.Context(), nil, "exec", "-it", pod, "--", "/app", "cat")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	shows := func(what string, times int) {
		o.t.Helper()
		eventually(o.t, "the terminal shows "+what, func(context.Context) string {
			if n := screen.count(what); n < times {
				return strconv.Itoa(n) + " times"
			}
			return ""
		})
	}
	for _, input := range []string{"one\n", "two\n"} {
		if _, err := keys.WriteString(input); err != nil {
			o.t.Fatal(err)
		}
		shows(strings.TrimSpace(input), 2)
	}
	if _, err := keys.WriteString("\x04"); err != nil {
		o.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		o.t.Errorf("exec -it: %v", err)
	}
}

// refused is what others see, in a container and as another user.
func (o ownersTools) refused(pod string) {
	o.t.Helper()
	o.wants(1, "", "run this on the node itself, not in a container", "exec", pod, "--", "/tools/edgehubctl", "logs", pod)
	for _, args := range [][]string{{"logs", pod}, {"exec", pod, "--", "/app", "version"}, {"restart", pod}} {
		out, errs, code := o.run([]string{"--setuid", "65534", "--setgid", "65534"}, "", args...)
		if code != 1 || out != "" || !strings.HasPrefix(errs, "error: permission denied") || strings.Count(errs, "\n") != 1 {
			o.t.Errorf("another user, %v: exit code %d, stdout %q, stderr %q", args, code, out, errs)
		}
	}
}

// notRestarted are containers that kubelet would not start again.
func (o ownersTools) notRestarted(once started) {
	o.t.Helper()
	o.wants(1, "", "nothing would start it again, as its restartPolicy is Never", "restart", o.ns+"/once")
	o.wants(4, "", "it is not known whether kubelet would start it again (the hub does not answer", "restart", "--address=127.0.0.1:1", o.ns+"/once")
	if after := o.find("once"); after.instance != once.instance {
		o.t.Error("the container was stopped all the same")
	}
	o.wants(5, "Stopping container app", "exit code 0, so that kubelet does not start it again", "restart", o.ns+"/polite")
}

// restart follows the log across a restart.
func (o ownersTools) restart(pod string, before started) {
	o.t.Helper()
	out, notes := &lines{}, &lines{}
	follow := o.command(o.t.Context(), nil, "logs", "-f", pod)
	follow.Stdout, follow.Stderr = out, notes
	if err := follow.Start(); err != nil {
		o.t.Fatal(err)
	}
	served := func(times int) {
		o.t.Helper()
		eventually(o.t, "the log is followed to start "+strconv.Itoa(times), func(context.Context) string {
			if n := out.count("serving at"); n != times {
				return strconv.Itoa(n) + " starts are in it"
			}
			return ""
		})
	}
	served(1)
	o.wants(0, "runs again (restart 1)\n", "", "restart", pod)
	served(2)
	eventually(o.t, "there is one note of the restart", func(context.Context) string {
		if n := notes.count("has started again (restart 1)\n"); n != 1 {
			return strconv.Itoa(n) + " are there"
		}
		return ""
	})
	if err := follow.Process.Signal(os.Interrupt); err != nil {
		o.t.Fatal(err)
	}
	if err := follow.Wait(); err != nil {
		o.t.Errorf("logs -f, interrupted: %v", err)
	}
	if after := o.find(before.pod.Name); after.instance == before.instance {
		o.t.Error("it is the same process as before")
	}
}
