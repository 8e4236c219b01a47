package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The addresses of host and machine on the wire between them, from the range that is
// set aside for tests of network devices (RFC 2544).
const (
	HostIP    = "198.19.250.1"
	IP        = "198.19.250.2"
	hostWire  = "edgehubm"
	bootLimit = 2 * time.Minute
)

// Machine is a machine that runs. There is one at a time, for its addresses and its
// control group have fixed names: what one that crashed has left is found by the next.
type Machine struct {
	lock   *os.File
	folder string
	cmd    *exec.Cmd
	ended  chan error // one result, when the first process has been waited for
	output bytes.Buffer
}

// Missing returns why no machine can be booted here; empty: one can.
func Missing() string {
	if os.Geteuid() != 0 {
		return "it takes root"
	}
	for _, program := range []string{systemd, "/usr/bin/nsenter", "/usr/bin/systemctl"} {
		if _, err := os.Stat(program); err != nil {
			return program + " is not installed (Debian's packages systemd and util-linux)"
		}
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return "ip is not installed (Debian's package iproute2)"
	}
	return ""
}

// Boot returns when systemd reports that the machine has started. binds are files of the
// host's, by their path in the machine.
func Boot(ctx context.Context, binds map[string]string) (*Machine, error) {
	m := &Machine{ended: make(chan error, 1)}
	err := m.boot(ctx, binds)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("boot a machine: %w", err), m.Stop())
	}
	return m, nil
}

func (m *Machine) boot(ctx context.Context, binds map[string]string) error {
	if err := m.takeLock(ctx); err != nil {
		return err
	}
	if err := removeGroups(); err != nil { // of one that crashed
		return err
	}
	if err := makeGroups(); err != nil {
		return err
	}
	var err error
	if m.folder, err = os.MkdirTemp("", "edgehub-machine-"); err != nil {
		return err
	}
	for _, name := range []string{"root", "memory"} {
		if err := os.Mkdir(filepath.Join(m.folder, name), 0o755); err != nil {
			return err
		}
	}
	input, err := m.start(binds)
	if err != nil {
		return err
	}
	defer input.Close()
	if err := joinGroups(m.cmd.Process.Pid); err != nil {
		return err
	}
	if err := m.wire(ctx); err != nil {
		return err
	}
	input.Close() // it goes on now
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	for {
		out, err := m.Run(ctx, "systemctl", "is-system-running")
		if state := strings.TrimSpace(out); state == "running" || state == "degraded" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("systemd does not start: %w: %s %w\n%s", ctx.Err(), out, err, m.output.String())
		case err := <-m.ended:
			m.ended <- err
			return fmt.Errorf("its first process has ended: %w\n%s", err, m.output.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// takeLock waits until no other machine runs.
func (m *Machine) takeLock(ctx context.Context) error {
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "edgehub-machine.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	for syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			lock.Close()
			return fmt.Errorf("wait for another machine to stop: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	m.lock = lock
	return nil
}

// start starts the first process, which waits until its input ends.
func (m *Machine) start(binds map[string]string) (io.Closer, error) {
	argument, err := json.Marshal(plan{m.folder, binds})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m.cmd = exec.Command(self) //nolint:noctx // it lives until Stop
	m.cmd.Env = append(os.Environ(), initVariable+"="+string(argument))
	m.cmd.Stdout, m.cmd.Stderr = &m.output, &m.output
	m.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL, Setpgid: true,
	}
	input, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() { // Pdeathsig is sent when the thread ends that has started it
		runtime.LockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			m.ended <- m.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		m.cmd = nil
		return nil, err
	}
	return input, nil
}

// wire joins host and machine. The host's end goes with the machine's.
func (m *Machine) wire(ctx context.Context) error {
	pid := strconv.Itoa(m.cmd.Process.Pid)
	inside := []string{"nsenter", "--target", pid, "--net"}
	_ = exec.CommandContext(ctx, "ip", "link", "delete", hostWire).Run() // of one that crashed
	for _, c := range [][]string{
		{"ip", "link", "add", hostWire, "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "address", "add", HostIP + "/30", "dev", hostWire},
		{"ip", "link", "set", hostWire, "up"},
		append(inside, "ip", "link", "set", "lo", "up"),
		append(inside, "ip", "address", "add", IP+"/30", "dev", "eth0"),
		append(inside, "ip", "link", "set", "eth0", "up"),
		append(inside, "ip", "route", "add", "default", "via", HostIP),
	} {
		if out, err := exec.CommandContext(ctx, c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, out)
		}
	}
	return nil
}

// PID is the first process, as the host counts.
func (m *Machine) PID() int { return m.cmd.Process.Pid }

// Path is a path of the machine's as the host sees it.
func (m *Machine) Path(path string) string { return fmt.Sprintf("/proc/%d/root%s", m.PID(), path) }

// Command is a command in the machine, run as root from a shell outside of all its units
// would be.
func (m *Machine) Command(ctx context.Context, args ...string) *exec.Cmd {
	in := []string{"--target", strconv.Itoa(m.PID()), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"}
	cmd := exec.CommandContext(ctx, "nsenter", append(in, args...)...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_PAGER=", "HOME=/root"}
	return cmd
}

// Run runs one, and returns what it prints on both its outputs.
func (m *Machine) Run(ctx context.Context, args ...string) (string, error) {
	out, err := m.Command(ctx, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// Write writes a file of the machine's.
func (m *Machine) Write(path, content string, mode os.FileMode) error {
	if err := os.MkdirAll(m.Path(filepath.Dir(path)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(m.Path(path), []byte(content), mode)
}

// Stop ends all that runs in the machine, and leaves nothing of it.
func (m *Machine) Stop() error {
	if m.lock == nil {
		return nil
	}
	defer m.lock.Close()
	var errs []error
	if m.cmd != nil {
		_ = m.cmd.Process.Kill()
		if err := <-m.ended; err == nil { // the kernel has ended all others by then
			errs = append(errs, errors.New("the machine's first process had ended by itself"))
		}
	}
	_ = exec.CommandContext(context.Background(), "ip", "link", "delete", hostWire).Run() // it goes by itself, when the kernel gets round to it
	errs = append(errs, removeGroups())
	if m.folder != "" {
		errs = append(errs, os.RemoveAll(m.folder))
	}
	return errors.Join(errs...)
}
