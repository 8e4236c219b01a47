package install

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/hub/checks"
	"github.com/edgehub-io/edgehub/test/install/machine"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
)

// checksVariable in the environment makes the test's own program a hub that runs its owner's checks, with this limit.
const checksVariable = "EDGEHUB_TEST_CHECKS"

// outcome is what that prints.
type outcome struct {
	Possible, Err string
	Results       []checks.Result
}

// runChecks does not return in a process that is to run checks.
func runChecks() {
	limit, err := time.ParseDuration(os.Getenv(checksVariable))
	if err != nil {
		return
	}
	ctx, o := context.Background(), outcome{}
	r := checks.Runner{Dir: checks.Dir, Scratch: "/var/lib/edgehub/checks", Limit: limit}
	if err := r.Possible(ctx); err != nil {
		o.Possible = err.Error()
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:v2"}}}}
	for result, err := range r.Run(ctx, pod) {
		if err != nil {
			o.Err = err.Error()
		}
		o.Results = append(o.Results, result)
	}
	if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// checkMachine has a service with the sandbox of the hub.
type checkMachine struct {
	*machine.Machine

	t *testing.T
}

func newCheckMachine(t *testing.T) *checkMachine {
	t.Helper()
	machine.Need(t, "the owner's checks, on a machine with systemd")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := hubproc.Programs("../..")
	if err != nil {
		t.Fatal(err)
	}
	m, err := machine.Boot(t.Context(), map[string]string{"/checks.test": self, "/edgehubctl": filepath.Join(programs, "edgehubctl")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	template, err := os.ReadFile("../../cmd/edgehub/install/templates/edgehub.service")
	if err != nil {
		t.Fatal(err)
	}
	_, sandbox, ok := strings.Cut(string(template), "WatchdogSec=30\n")
	sandbox, _, _ = strings.Cut(sandbox, "[Install]")
	if !ok || !strings.Contains(sandbox, "ProtectSystem=strict") || !strings.Contains(sandbox, "MemoryMax=") {
		t.Fatalf("the hub's unit has no sandbox where it is looked for: %s", template)
	}
	sandbox = strings.ReplaceAll(sandbox, "{{ROOT_DIR}}", "")
	c := &checkMachine{m, t}
	c.write("/etc/systemd/system/hub.service", "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/checks.test\nEnvironment="+checksVariable+"=10s\nStandardOutput=truncate:/outcome\n"+sandbox, 0o644)
	c.run("systemctl", "daemon-reload")
	return c
}

func (m *checkMachine) write(path, content string, mode os.FileMode) {
	m.t.Helper()
	if err := m.Write(path, content, mode); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chmod(m.Path(path), mode); err != nil { // whatever the umask is
		m.t.Fatal(err)
	}
}

func (m *checkMachine) run(args ...string) string {
	m.t.Helper()
	out, err := m.Run(m.t.Context(), args...)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// check has the hub run all checks.
func (m *checkMachine) check() (o outcome) {
	m.t.Helper()
	m.run("systemctl", "start", "hub.service")
	text, err := os.ReadFile(m.Path("/outcome"))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return o
}

// isGone fails if something is left of the checks.
func (m *checkMachine) isGone() {
	m.t.Helper()
	if units := m.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "edgehub-check-*"); units != "" {
		m.t.Errorf("units are left: %s", units)
	}
	if processes := m.run("sh", "-c", "cat /proc/[0-9]*/comm"); strings.Contains(processes, "sleep") || strings.Contains(processes, "tail") {
		m.t.Errorf("processes are left: %s", processes)
	}
	if files, err := os.ReadDir(m.Path("/var/lib/edgehub/checks")); err != nil || len(files) > 0 {
		m.t.Errorf("files are left: %v, %v", files, err)
	}
}

// edgehubctl has the owner run all checks, without a pod, which is a failure of the first.
func (m *checkMachine) edgehubctl(first, mayFail string) {
	m.t.Helper()
	out, err := m.Run(m.t.Context(), "/edgehubctl", "check")
	for _, line := range []string{first + ": failed: exit code 1", "required.d/60-leaves-a-process: passed", mayFail + ": failed, which it may: exit code 1", "error: 4 required checks failed: an upgrade in place would be undone"} {
		if !strings.Contains("\n"+out, "\n"+line+"\n") {
			m.t.Errorf("no line %q in %s", line, out)
		}
	}
	if err == nil {
		m.t.Error("edgehubctl check has exit code 0")
	}
}

// TestOwnersChecks has a hub, in its sandbox, run checks that do what should not be done to a node.
func TestOwnersChecks(t *testing.T) {
	m := newCheckMachine(t)
	if o := m.check(); o.Possible != "" || o.Err != "" || o.Results != nil {
		t.Errorf("a node without checks: %+v", o)
	}
	tests := []struct {
		check, script string
		message       string // a pattern; "": it passes
	}{
		{"required.d/10-sees-the-node", `touch /run/no-hub-may; test "$EDGEHUB_NAMESPACE/$EDGEHUB_POD $EDGEHUB_IMAGES" = "shop/web app=app:v2"`, ""},
		{"required.d/20-leaks-memory", "exec tail /dev/zero", "^it was killed: it needs more than 256M of memory$|^it was killed by signal 9, as one that needs more than 256M of memory may be$"},
		{"required.d/30-forks-without-end", "while :; do sleep 1000 & done", "^exit code 2: .*fork"},
		{"required.d/40-hangs", "trap '' TERM; echo waiting; sleep 1000 & wait; sleep 1000", "^it has not ended within 10s: waiting$"},
		{"required.d/50-writes-much", "yes | head -c 10000000; echo; echo no route; exit 3", "^exit code 3: no route$"},
		{"required.d/60-leaves-a-process", "setsid sleep 1000 &", ""},
		{"required.d/70-crashes", "kill -SEGV $$", "^it was killed by signal 11$"},
		{"wanted.d/10-fails", "exit 1", "^exit code 1$"},
		{"wanted.d/20-is-no-program", "", "^it cannot be executed$"},
	}
	for _, tt := range tests {
		text := "#!/bin/sh\n" + tt.script + "\n"
		if tt.script == "" {
			text = "words"
		}
		m.write(filepath.Join(checks.Dir, tt.check), text, 0o755)
	}
	o := m.check()
	if o.Possible != "" || o.Err != "" || len(o.Results) != len(tests) {
		t.Fatalf("%+v", o)
	}
	for i, tt := range tests {
		r := o.Results[i]
		if r.Check != tt.check || r.Passed != (tt.message == "") || r.Required != strings.HasPrefix(tt.check, "required.d/") || !regexp.MustCompile(tt.message).MatchString(r.Message) {
			t.Errorf("%+v, want %q", r, tt.message)
		}
	}
	m.isGone()
	out, err := m.Run(t.Context(), "timeout", "--preserve-status", "--signal=INT", "5", "/edgehubctl", "check") // while one hangs, or one before it runs
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 3 || !strings.Contains(out, "error: interrupted: check required.d/") {
		t.Errorf("interrupted: %v, %s", err, out)
	}
	m.isGone()
	m.run("rm", checks.Dir+"/required.d/40-hangs", checks.Dir+"/required.d/20-leaks-memory")
	m.edgehubctl(tests[0].check, tests[7].check)
	m.isGone()

	m.write(checks.Dir+"/required.d/80-anybodys", "", 0o777)
	if o := m.check(); o.Possible != "check required.d/80-anybodys is not run: others than root may write it: chmod go-w" {
		t.Errorf("with a file that anybody may write: %+v", o)
	}

	// As a hub that was killed, or edgehubctl check, has left it.
	m.run("systemd-run", "--unit=edgehub-check-required-10-sees-the-node", "--service-type=oneshot", "--no-block", "sh", "-c", "sleep 2; exit 1")
	if o := m.check(); !o.Results[0].Passed {
		t.Errorf("a check that runs already has the result %+v", o.Results[0])
	}
	m.isGone()

	m.run("rm", "-r", checks.Dir+"/required.d")
	m.write(checks.Dir+"/required.d/10-waits", "#!/bin/sh\nsystemctl start --no-block shutdown.target; exec sleep 1000\n", 0o755)
	if o := m.check(); !strings.HasPrefix(o.Err, "check required.d/10-waits: systemd does not run it") {
		t.Errorf("a machine that is shut down fails its checks: %+v", o)
	}
}
