package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long Stop waits for an orderly end before it kills. An
// apiserver with open watches is the slowest of the components.
const stopGrace = 10 * time.Second

// startTimeout is how long a component may take until it serves: ten times what
// the slowest of them, the apiserver, takes on two idle cores, since tests run
// beside compilers.
const startTimeout = time.Minute

// Process is one component of the cluster. It can be stopped, killed, frozen
// and started again with the same arguments as often as a test likes. All
// methods may be called from several goroutines.
type Process struct {
	name    string
	logFile string
	start   func(*exec.Cmd) error // a launcher's
	command func() *exec.Cmd
	ready   func(context.Context) error // nil: ready when started

	mu      sync.Mutex
	current *running // nil until the first start
}

// running is one life of a process.
type running struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is reaped and err is set
	err    error
}

// Name is the component's name, for example "kube-apiserver" or "node1/kubelet".
func (p *Process) Name() string { return p.name }

// LogFile is where the output of all its lives goes, one after the other.
func (p *Process) LogFile() string { return p.logFile }

// PID is the process id as the host sees it; 0 when it does not run.
func (p *Process) PID() int {
	if r := p.alive(); r != nil {
		return r.cmd.Process.Pid
	}
	return 0
}

// Running reports whether the process lives; a frozen one does.
func (p *Process) Running() bool { return p.alive() != nil }

// Start starts the process and returns when it serves. An error describes why it
// does not, with the end of its log; the process has been killed then.
func (p *Process) Start(ctx context.Context) error {
	r, err := p.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if err := p.awaitReady(ctx, r); err != nil {
		_ = p.Kill()
		return fmt.Errorf("start %s: %w%s", p.name, err, logTail(p.logFile))
	}
	return nil
}

// Stop asks the process to end, kills it when it takes longer than 10 s, and
// returns when it is gone.
func (p *Process) Stop() error {
	r := p.alive()
	if r == nil {
		return nil
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	_ = r.cmd.Process.Signal(syscall.SIGCONT) // a frozen process would never see it
	select {
	case <-r.exited:
		return nil
	case <-time.After(stopGrace):
		return p.Kill()
	}
}

// Kill ends the process at once, as a crash would, and returns when it is gone.
func (p *Process) Kill() error {
	r := p.alive()
	if r == nil {
		return nil
	}
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-r.exited
	return nil
}

// Freeze stops the process where it is (SIGSTOP): its connections stay open and
// nothing answers on them, like a machine that hangs.
func (p *Process) Freeze() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	r := p.alive()
	if r == nil {
		return fmt.Errorf("freeze %s: it has ended", p.name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), freezeTimeout)
	defer cancel()
	return poll(ctx, func(context.Context) error { return frozen(r.cmd.Process.Pid) })
}

// freezeTimeout is how long the kernel may take to stop all threads of a process: it
// does so as each gets a processor.
const freezeTimeout = time.Minute

// frozen returns nil once all threads of a process have stopped.
func frozen(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		_, state, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		if !strings.HasPrefix(state, "T") && !strings.HasPrefix(state, "Z") {
			return fmt.Errorf("%s is in state %.1s", file, state)
		}
	}
	return nil
}

// Cont lets a frozen process go on.
func (p *Process) Cont() error { return p.signal(syscall.SIGCONT) }

// Restart stops the process if it runs, starts it, and returns when it serves.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Stop(); err != nil {
		return err
	}
	return p.Start(ctx)
}

func (p *Process) signal(s syscall.Signal) error {
	r := p.alive()
	if r == nil {
		return fmt.Errorf("send %s to %s: it does not run", s, p.name)
	}
	return r.cmd.Process.Signal(s)
}

func (p *Process) alive() *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aliveLocked()
}

func (p *Process) aliveLocked() *running {
	if p.current == nil {
		return nil
	}
	select {
	case <-p.current.exited:
		return nil
	default:
		return p.current
	}
}

// launch starts the process without waiting for it to serve.
func (p *Process) launch() (*running, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aliveLocked() != nil {
		return nil, errors.New("it runs already")
	}
	if err := os.MkdirAll(filepath.Dir(p.logFile), 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy

	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	if err := p.start(cmd); err != nil {
		return nil, err
	}
	r := &running{cmd: cmd, exited: make(chan struct{})}
	p.current = r
	go func() {
		r.err = cmd.Wait()
		close(r.exited)
	}()
	return r, nil
}

// awaitReady returns when the process serves, and fails as soon as it has ended.
func (p *Process) awaitReady(ctx context.Context, r *running) error {
	if p.ready == nil {
		return nil
	}
	ctx, done := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("it does not serve after %s", startTimeout))
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-r.exited:
			cancel(fmt.Errorf("it ended before it was ready: %w", exitReason(r.err)))
		case <-ctx.Done():
		}
	}()
	err := poll(ctx, p.ready)
	cancel(nil)
	<-ended
	return err
}

// exitReason gives a clean exit a name, since a nil error has no text.
func exitReason(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}
