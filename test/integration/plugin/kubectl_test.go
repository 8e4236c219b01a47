package plugin

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// answer is what a person gets to see, and a script.
type answer struct {
	out, err string
	code     int
}

// kubectl runs kubectl with the plugin in its PATH, and with the administrator's
// credentials.
func kubectl(t *testing.T, args ...string) answer {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := command(t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	return answer{code: exitCode(t, cmd.Run()), out: out.String(), err: errs.String()}
}

// edgehub is kubectl edgehub.
func edgehub(t *testing.T, args ...string) answer {
	t.Helper()
	return kubectl(t, append([]string{"edgehub"}, args...)...)
}

func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, env.kubernetes, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.cluster.Kubeconfig(), "PATH="+env.pluginDir+":"+os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=0") // or else a race build ends a second late
	return cmd
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		t.Fatal(err)
		return -1
	}
}

// expect checks the exit code, and that each of the words is on stdout or stderr.
func (a answer) expect(t *testing.T, code int, words ...string) {
	t.Helper()
	if a.code != code {
		t.Errorf("got exit code %d, want %d", a.code, code)
	}
	for _, w := range words {
		if !strings.Contains(a.out+a.err, w) {
			t.Errorf("%q is missing", w)
		}
	}
	if (a.err != "") != (code == 1) && len(words) == 0 {
		t.Errorf("stderr and exit code do not fit")
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", a.out, a.err)
	}
}

// running is a kubectl that has not ended yet.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *lockedBuffer
	done chan error // one result
}

// start runs kubectl edgehub in the background, with stdout and stderr in one.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{t: t, out: &lockedBuffer{}, done: make(chan error, 1)}
	r.cmd = command(t.Context(), append([]string{"edgehub"}, args...)...)
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	return r
}

// sees waits until the output has words in it.
func (r *running) sees(words string) {
	r.t.Helper()
	poll.Eventually(r.t, "the output has "+words+" in it", func() bool { return strings.Contains(r.out.String(), words) })
}

// ends waits for the end and checks the exit code.
func (r *running) ends(code int) {
	r.t.Helper()
	select {
	case err := <-r.done:
		if got := exitCode(r.t, err); got != code {
			r.t.Errorf("got exit code %d, want %d; output:\n%s", got, code, r.out)
		}
	case <-time.After(poll.Patience):
		r.t.Fatalf("it has not ended; output so far:\n%s", r.out)
	}
}
