package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/exec"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// expect checks an error's exit code, and that its text has all of words.
func expect(t *testing.T, err error, code int, words ...string) {
	t.Helper()
	if err == nil || cli.CodeOf(err) != code {
		t.Errorf("got %v with exit code %d, want %d", err, cli.CodeOf(err), code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %q, want %q in it", err, w)
		}
	}
}

func TestSocketThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		endpoint string
		code     int
		words    string
	}{
		"no socket: in a container": {"unix://" + filepath.Join(dir, "none.sock"), cli.Failed, "run this on the node itself, not in a container"},
		"nobody listens":            {dead, cli.Failed, "containerd does not run"},
		"another machine":           {"tcp://10.0.0.1:1", cli.Usage, "is no socket"},
		"not a path":                {"containerd.sock", cli.Usage, "is no socket"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Open(tt.endpoint, 0)
			expect(t, err, tt.code, tt.words)
		})
	}
}

func TestWhichContainer(t *testing.T) {
	f := newFake(t)
	ctx := t.Context()
	_, err := f.find(ctx, web, "")
	expect(t, err, cli.Failed, "no pod shop/web-1 runs on this node")
	f.addPod("old", nil)
	f.start(t, "old", "app", "")
	f.addPod("new", nil)
	_, err = f.find(ctx, web, "")
	expect(t, err, cli.NotNow, "has no container yet")

	setup := f.start(t, "new", "setup", "")
	if a, err := f.find(ctx, web, ""); err != nil || a.name != "setup" {
		t.Errorf("the only container: %v, %v", a, err)
	}
	f.end(setup, 0)
	app := f.start(t, "new", "app", "")
	if a, err := f.find(ctx, web, ""); err != nil || a.runs[0].Id != app.Id {
		t.Errorf("besides an init container that has ended: %v, %v", a, err)
	}
	f.start(t, "new", "debugger", "")
	_, err = f.find(ctx, web, "")
	expect(t, err, cli.Usage, "choose one with -c: setup (ended with exit code 0), app (running), debugger (running)")
	_, err = f.find(ctx, web, "nope")
	expect(t, err, cli.Usage, `no container "nope"; it has: setup`)
	if a, err := f.find(ctx, web, "debugger"); err != nil || a.name != "debugger" {
		t.Errorf("by name: %v, %v", a, err)
	}
	f.addPod("new", map[string]string{defaultContainer: "app"})
	if a, err := f.find(ctx, web, ""); err != nil || a.name != "app" {
		t.Errorf("the default container: %v, %v", a, err)
	}
}

// always is the policy of most pods.
func always(context.Context, types.UID, string) (corev1.RestartPolicy, error) {
	return corev1.RestartPolicyAlways, nil
}

func TestRestart(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	old := f.start(t, "uid", "app", "")
	old.Annotations = map[string]string{gracePeriodAnnotation: "7", preStopAnnotation: "{}"}
	f.onStop = func() { f.start(t, "uid", "app", "") }
	var notes bytes.Buffer
	if err := f.Restart(t.Context(), web, RestartOptions{Policy: always, Notes: &notes}); err != nil {
		t.Fatal(err)
	}
	const want = `Stopping container app of pod shop/web-1: it has 7s to end
Its preStop hook does not run: only kubelet runs hooks
It has stopped; waiting for kubelet to start it again
Container app of pod shop/web-1 runs again (restart 1)
`
	if notes.String() != want {
		t.Errorf("got\n%swant\n%s", &notes, want)
	}
	if len(f.stopped) != 1 || f.stopped[0].ContainerId != old.Id || f.stopped[0].Timeout != 7 {
		t.Errorf("stopped %v, want %s with 7 s", f.stopped, old.Id)
	}
}

func TestRestartThatEndsOtherwise(t *testing.T) {
	tests := map[string]struct {
		policy corev1.RestartPolicy
		onStop func(t *testing.T, f *fakeRuntime, cancel func())
		code   int
		words  string
	}{
		"it crashes": {corev1.RestartPolicyAlways, func(t *testing.T, f *fakeRuntime, _ func()) {
			f.end(f.start(t, "uid", "app", ""), 1)
		}, cli.Broken, "has ended; edgehubctl logs shop/web-1 -c app"},
		"the pod goes":        {corev1.RestartPolicyAlways, func(_ *testing.T, f *fakeRuntime, _ func()) { f.forget() }, cli.Broken, "has left this node"},
		"kubelet is not here": {corev1.RestartPolicyAlways, func(_ *testing.T, _ *fakeRuntime, cancel func()) { cancel() }, cli.Undone, "not waited for"},
		"it has ended well, and OnFailure leaves it so": {corev1.RestartPolicyOnFailure, func(_ *testing.T, f *fakeRuntime, _ func()) {
			f.end(f.containers[0], 0)
		}, cli.Broken, "exit code 0, so that kubelet does not start it again"},
		"it has failed, and OnFailure starts it again": {corev1.RestartPolicyOnFailure, func(t *testing.T, f *fakeRuntime, _ func()) {
			f.end(f.start(t, "uid", "app", ""), 1)
		}, cli.Broken, "was started again and has ended"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.addPod("uid", nil)
			f.start(t, "uid", "app", "")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f.onStop = func() { tt.onStop(t, f, cancel) }
			policy := func(context.Context, types.UID, string) (corev1.RestartPolicy, error) { return tt.policy, nil }
			expect(t, f.Restart(ctx, web, RestartOptions{Policy: policy, Notes: io.Discard}), tt.code, tt.words)
		})
	}
}

// What nothing would start again is not stopped.
func TestRestartOfWhatNothingStartsAgain(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	f.start(t, "uid", "app", "")
	o := RestartOptions{NoWait: true, Notes: io.Discard, Policy: func(_ context.Context, uid types.UID, name string) (corev1.RestartPolicy, error) {
		if uid != "uid" || name != "app" {
			t.Errorf("asked for container %s of the pod with UID %s", name, uid)
		}
		return corev1.RestartPolicyNever, nil
	}}
	for _, o.Force = range []bool{false, true} {
		expect(t, f.Restart(t.Context(), web, o), cli.Failed, "container app of pod shop/web-1 was not stopped", "its restartPolicy is Never")
	}
	o.Policy = func(context.Context, types.UID, string) (corev1.RestartPolicy, error) {
		return "", errors.New("no hub")
	}
	o.Force = false
	expect(t, f.Restart(t.Context(), web, o), cli.NotNow, "not known whether kubelet would start it again (no hub); --force")
	if len(f.stopped) > 0 {
		t.Errorf("stopped %v", f.stopped)
	}
	o.Force = true
	if err := f.Restart(t.Context(), web, o); err != nil || len(f.stopped) != 1 {
		t.Errorf("with --force: %v, stopped %v", err, f.stopped)
	}
}

func TestRestartWithoutWaiting(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	app := f.start(t, "uid", "app", "")
	var notes bytes.Buffer
	if err := f.Restart(t.Context(), web, RestartOptions{Policy: always, NoWait: true, Notes: &notes}); err != nil || !strings.HasSuffix(notes.String(), "has stopped; kubelet starts it again\n") {
		t.Errorf("got %q, %v", &notes, err)
	}
	if f.stopped[0].Timeout != defaultGrace {
		t.Errorf("it has %d s to end, want %d", f.stopped[0].Timeout, defaultGrace)
	}
	f.end(app, 3)
	expect(t, f.Restart(t.Context(), web, RestartOptions{Policy: always, Notes: io.Discard}), cli.NotNow, "ended with exit code 3", "edgehubctl logs")
	if len(f.stopped) != 1 {
		t.Error("a container that does not run was stopped")
	}
}

func TestExec(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	app := f.start(t, "uid", "app", "")
	tests := map[string]struct {
		run       func(cmd []string, in io.Reader, out, errs io.Writer) error
		in        io.Reader
		out, errs string
		check     func(t *testing.T, err error)
	}{
		"it is done": {func(cmd []string, _ io.Reader, out, errs io.Writer) error {
			fmt.Fprintf(errs, "warning\x1b")
			_, err := fmt.Fprintf(out, "%q\x00", cmd)
			return err
		}, nil, "[\"cat\" \"-\"]\x00", "warning\x1b", nil},
		"it reads": {func(_ []string, in io.Reader, out, _ io.Writer) error {
			_, err := io.Copy(out, in)
			return err
		}, strings.NewReader("a\nb"), "a\nb", "", nil},
		"it fails": {func([]string, io.Reader, io.Writer, io.Writer) error {
			return exec.CodeExitError{Err: errors.New("exit"), Code: 42}
		}, nil, "", "", func(t *testing.T, err error) {
			if cli.CodeOf(err) != 42 {
				t.Errorf("got %v, want exit code 42", err)
			}
		}},
		"there is no such program": {func([]string, io.Reader, io.Writer, io.Writer) error {
			return errors.New("exec: \"cat\":\nexecutable file not found in $PATH")
		}, nil, "", "", func(t *testing.T, err error) {
			expect(t, err, cli.Failed, "run a command in container app of pod shop/web-1", "executable file not found")
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f.run = tt.run
			var out, errs bytes.Buffer
			err := f.Node.Exec(t.Context(), web, ExecOptions{Command: []string{"cat", "-"}, Stdin: tt.in, Stdout: &out, Stderr: &errs})
			if tt.check != nil {
				tt.check(t, err)
			} else if err != nil {
				t.Error(err)
			}
			if out.String() != tt.out || errs.String() != tt.errs {
				t.Errorf("stdout %q, stderr %q", &out, &errs)
			}
		})
	}
	f.end(app, 0)
	expect(t, f.Node.Exec(t.Context(), web, ExecOptions{Command: []string{"ls"}, Stdout: io.Discard, Stderr: io.Discard}), cli.NotNow, "does not run")
}

func TestExecInterrupted(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", nil)
	f.start(t, "uid", "app", "")
	ctx, cancel := context.WithCancel(t.Context())
	f.run = func(_ []string, in io.Reader, _, _ io.Writer) error {
		cancel()
		_, err := io.Copy(io.Discard, in) // until the connection is gone
		return err
	}
	keys, typist := io.Pipe() // nothing is typed
	defer typist.Close()
	expect(t, f.Node.Exec(ctx, web, ExecOptions{Command: []string{"cat"}, Stdin: keys, Stdout: io.Discard, Stderr: io.Discard}), cli.Undone, "the command may go on")
}

// A node with very many containers, or a runtime that has gone mad.
func TestAnswerThatIsTooLarge(t *testing.T) {
	f := newFake(t)
	f.addPod("uid", map[string]string{"large": strings.Repeat("x", messageLimit)})
	_, err := f.find(t.Context(), web, "")
	expect(t, err, cli.Failed, "look for the pod: containerd:", "larger than max")
}

func TestGracePeriod(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "90": 90, "": defaultGrace, "-1": defaultGrace, "soon": defaultGrace} {
		if got := gracePeriod(map[string]string{gracePeriodAnnotation: text}); got != want {
			t.Errorf("%q: %d s, want %d", text, got, want)
		}
	}
}
