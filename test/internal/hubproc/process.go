package hubproc

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Start starts the hub and returns when it serves, whether the cloud is there or not.
func (h *Hub) Start() {
	h.t.Helper()
	log, err := os.OpenFile(h.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close() // the child has its own copy
	command := append(append(h.wrap[:len(h.wrap):len(h.wrap)], h.binary), h.args...)
	cmd := exec.CommandContext(context.WithoutCancel(h.t.Context()), command[0], command[1:]...) // a cleanup may need it
	cmd.Stdout, cmd.Stderr = log, log
	if h.exited, err = StartAndWait(cmd); err != nil {
		h.t.Fatal(err)
	}
	h.process = cmd
	h.awaitServing()
}

// StartAndWait starts a process, and returns a channel that is closed once it has been
// waited for. It ends with this program, and is in a process group of its own. The thread that has started it stays as long: Pdeathsig is sent when that
// ends, and threads of others that start containers do.
func StartAndWait(cmd *exec.Cmd) (<-chan struct{}, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(exited)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	return exited, <-started
}

func (h *Hub) awaitServing() {
	h.t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !h.serves() {
		select {
		case <-h.exited:
			h.t.Fatalf("the hub has ended: %v", h.process.ProcessState)
		case <-deadline:
			h.t.Fatalf("not within %s: the hub serves", patience)
		case <-ticker.C:
		}
	}
}

func (h *Hub) serves() bool {
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.API+"/v1/healthz", http.NoBody)
	if err != nil {
		return false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// Stop stops the hub in order: what it knows is on disk then.
func (h *Hub) Stop() {
	h.t.Helper()
	h.signal(syscall.SIGTERM)
	if code := h.process.ProcessState.ExitCode(); code != 0 {
		h.t.Errorf("the hub ended with %v", h.process.ProcessState)
	}
}

// Kill ends the hub at once, as a crash would.
func (h *Hub) Kill() {
	h.t.Helper()
	h.signal(syscall.SIGKILL)
}

// Freeze makes the hub stand still, as on a machine that hangs, until Cont.
func (h *Hub) Freeze() {
	h.t.Helper()
	h.send(syscall.SIGSTOP)
}

// Cont lets a hub that stands still go on.
func (h *Hub) Cont() {
	h.t.Helper()
	h.send(syscall.SIGCONT)
}

func (h *Hub) send(s syscall.Signal) {
	h.t.Helper()
	if err := h.process.Process.Signal(s); err != nil {
		h.t.Fatalf("%v to the hub: %v", s, err)
	}
}

// signal sends a signal that ends the hub, and returns when it has.
func (h *Hub) signal(s syscall.Signal) {
	h.t.Helper()
	h.send(s)
	select {
	case <-h.exited:
	case <-time.After(patience):
		_ = h.process.Process.Kill()
		<-h.exited
		h.t.Fatalf("the hub did not end after %v", s)
	}
}

// AwaitFailure returns when the hub has ended by itself, with an error: systemd would start it again.
func (h *Hub) AwaitFailure() {
	h.t.Helper()
	select {
	case <-h.exited:
	case <-time.After(patience):
		h.t.Fatalf("not within %s: the hub ends", patience)
	}
	if code := h.process.ProcessState.ExitCode(); code != 1 {
		h.t.Errorf("the hub ended with %v", h.process.ProcessState)
	}
}

// End ends the hub, which happens with the test by itself, and shows what it logged if
// that has failed. It may be called again.
func (h *Hub) End() {
	if h.process != nil {
		_ = h.process.Process.Kill()
		<-h.exited
	}
	text, err := os.ReadFile(h.Log)
	if err != nil {
		return
	}
	if regexp.MustCompile("DATA RACE|panic:|fatal error:").Match(text) {
		h.t.Errorf("the hub has a data race or a panic, or ends in a fatal error:\n%s", text)
		return
	}
	if h.t.Failed() {
		lines := strings.SplitAfter(string(text), "\n")
		const enough = 60
		h.t.Logf("the end of the log of hub %s:\n%s", h.Name, strings.Join(lines[max(0, len(lines)-enough):], ""))
	}
}
