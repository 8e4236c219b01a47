package checks

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Limits of one check.
const (
	// MaxTime is for a check that waits for a device to start, or for a few attempts to reach something.
	MaxTime = 2 * time.Minute
	// maxMemory is enough for scripts of any kind: a shell with the usual tools takes 10 MB, and Python 50.
	maxMemory = "256M"
	// maxWords bounds what is repeated of a check's output, in bytes, and maxTail what is kept of it to find its last line.
	maxWords, maxTail = 200, 4096
	// stopTime is for systemctl to stop a check at once, on a slow board.
	stopTime = 10 * time.Second
)

// properties are those of a check's service.
func properties(limit time.Duration) []string {
	return []string{
		"MemoryMax=" + maxMemory,
		"MemorySwapMax=0",        // swap would only delay the end
		"OOMPolicy=kill",         // a child that is killed is the end of all, not a result that its parent may overlook
		"OOMScoreAdjust=500",     // if the machine itself is short of memory, a check goes first; the hub has -998
		"TasksMax=64",            // a pipeline in a loop takes ten
		"LimitCORE=0",            // a crash costs no disk
		"KillMode=control-group", // with all that it has started
		"KillSignal=SIGKILL",     // a check has nothing to put in order
		fmt.Sprintf("TimeoutStartSec=%dms", limit.Milliseconds()), // RuntimeMaxSec is not for type oneshot
	}
}

// command is systemd-run for a service.
func (r *Runner) command(ctx context.Context, args ...string) *exec.Cmd {
	words := []string{"--quiet", "--no-ask-password", "--service-type=oneshot"}
	for _, p := range properties(cmp.Or(r.Limit, MaxTime)) {
		words = append(words, "--property="+p)
	}
	cmd := exec.CommandContext(ctx, "systemd-run", append(words, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends ctx, which stops the check as well
	return cmd
}

// try has systemd start a service that does nothing.
func (r *Runner) try(ctx context.Context) error {
	program, err := exec.LookPath("true")
	if err != nil {
		return err
	}
	if out, err := r.command(ctx, "--property=CollectMode=inactive-or-failed", "--", program).CombinedOutput(); err != nil {
		return noUnit(err, out)
	}
	return nil
}

// noUnit is the error of a systemd-run that has started nothing.
func noUnit(err error, out []byte) error {
	return fmt.Errorf("systemd does not run it: %w %s", err, api.OneLine(strings.TrimSpace(string(out)), maxWords))
}

// run runs a check to its end, and returns why it has not passed, "" if it has. The error is why that is not known.
func (r *Runner) run(ctx context.Context, c check, env []string) (failed string, err error) {
	unit := "edgehub-check-" + strings.TrimSuffix(c.folder, ".d") + "-" + c.name + ".service"
	written, err := r.openOutput(unit)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, written.remove()) }()
	args := []string{
		"--unit=" + unit, "--description=edgehub: the owner's check " + c.String(),
		"--property=StandardOutput=file:" + written.path, "--property=StandardError=inherit",
	}
	for _, e := range env {
		args = append(args, "--setenv="+e)
	}
	if err := awaitOther(ctx, unit); err != nil {
		return "", err
	}
	out, err := r.command(ctx, append(args, "--", filepath.Join(r.Dir, c.String()))...).CombinedOutput()
	line := written.end()
	switch {
	case ctx.Err() != nil:
		stop(ctx, unit)
		return "", ctx.Err()
	case err == nil:
		return "", nil
	}
	why, known := r.failure(ctx, unit)
	if !known {
		return "", noUnit(err, out)
	}
	if line != "" {
		why += ": " + line
	}
	return why, nil
}

// awaitOther waits until a check has ended that a hub has left behind when it was killed, or that edgehubctl has begun. No check
// takes longer than its limit.
func awaitOther(ctx context.Context, unit string) error {
	late := time.After(MaxTime + stopTime)
	for {
		switch state := show(ctx, unit)["ActiveState"]; state {
		case "failed":
			_ = systemctl(ctx, "reset-failed", unit)
			return nil
		case "", "inactive": // systemctl does not work, and systemd-run says why; or there is none
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return errors.New("the same check is running, again and again")
		case <-time.After(time.Second):
		}
	}
}

// show returns properties of a service, none if that fails.
func show(ctx context.Context, unit string) map[string]string {
	out, _ := exec.CommandContext(ctx, "systemctl", "show", unit, "--property=ActiveState,Result,ExecMainStatus").Output()
	properties := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		properties[name] = value
	}
	return properties
}

// failure returns how a service has failed. It is not known if systemd has not started it, or it has not ended: it may be another's.
func (r *Runner) failure(ctx context.Context, unit string) (how string, known bool) {
	properties := show(ctx, unit)
	if properties["ActiveState"] != "failed" {
		return "", false
	}
	defer func() { _ = systemctl(ctx, "reset-failed", unit) }()
	status := properties["ExecMainStatus"]
	switch result := properties["Result"]; {
	case result == "exit-code" && status == "203": // EXIT_EXEC of systemd.exec(5)
		how = "it cannot be executed"
	case result == "exit-code":
		how = "exit code " + status
	case result == "timeout":
		how = fmt.Sprintf("it has not ended within %v", cmp.Or(r.Limit, MaxTime))
	case result == "oom-kill":
		how = "it was killed: it needs more than " + maxMemory + " of memory"
	case result == "signal" && status == "9": // systemd learns nothing of it from control groups of version 1
		how = "it was killed by signal 9, as one that needs more than " + maxMemory + " of memory may be"
	case result == "signal", result == "core-dump":
		how = "it was killed by signal " + status
	default: // systemd lacks something
		return "", false
	}
	return how, !isStopping(ctx)
}

// isStopping reports whether the machine is being shut down, which kills checks.
func isStopping(ctx context.Context) bool {
	state, _ := exec.CommandContext(ctx, "systemctl", "is-system-running").Output() // its exit code is not 0 for most states
	return strings.TrimSpace(string(state)) == "stopping"
}

// stop kills what runs in a service, and has systemd forget it.
func stop(ctx context.Context, unit string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	_ = systemctl(ctx, "stop", unit) // these fail if there is none
	_ = systemctl(ctx, "reset-failed", unit)
}

func systemctl(ctx context.Context, args ...string) error {
	return exec.CommandContext(ctx, "systemctl", append([]string{"--quiet"}, args...)...).Run()
}

// output reads what a check writes, in memory, of which only the end is kept: a check fills no disk.
type output struct {
	path     string
	from, to *os.File
	tail     bytes.Buffer
	read     chan struct{} // closed when nothing more comes
}

// openOutput makes a FIFO for a service.
func (r *Runner) openOutput(unit string) (*output, error) {
	if err := os.MkdirAll(r.Scratch, 0o700); err != nil {
		return nil, err
	}
	o := &output{path: filepath.Join(r.Scratch, unit), read: make(chan struct{})}
	if err := os.Remove(o.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	err := syscall.Mkfifo(o.path, 0o600)
	if err == nil {
		o.from, err = os.OpenFile(o.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	if err == nil {
		o.to, err = os.OpenFile(o.path, os.O_WRONLY|syscall.O_NONBLOCK, 0) // the end comes when this is closed, too, not before the check has begun
	}
	if err != nil {
		return nil, errors.Join(err, o.remove())
	}
	go func() { defer close(o.read); _, _ = io.Copy(o, o.from) }() // what cannot be read is left out
	return o, nil
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.tail.Write(p)
	o.tail.Next(max(0, o.tail.Len()-maxTail))
	return len(p), nil
}

// end returns the last line that was written, once the check has ended.
func (o *output) end() string {
	o.to.Close()
	_ = o.from.SetReadDeadline(time.Now().Add(time.Second)) // something that could not be stopped may have it open
	<-o.read
	text := strings.TrimSpace(o.tail.String())
	return api.OneLine(strings.TrimSpace(text[strings.LastIndex(text, "\n")+1:]), maxWords)
}

// remove removes the FIFO.
func (o *output) remove() error {
	if o.from != nil {
		o.from.Close()
	}
	return os.Remove(o.path)
}
