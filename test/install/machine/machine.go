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
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
)

// bootLimit is how long a machine may take to boot.
const bootLimit = 2 * time.Minute

// Options describe a machine.
type Options struct {
	// Name is the machine's host name. There is one machine of a name at a time, for its
	// control group, interface and lock are named for it: what one that crashed has left is
	// found by the next. At most 7 bytes long, for the sake of the interface.
	Name string
	// Binds are files of the host's, by their path in the machine.
	Binds map[string]string
	// Disk is a folder of the host's on a file system that can be the upper layer of an
	// overlay. It keeps what the machine writes, except in /run, /tmp and /var/tmp, for the
	// next PowerOn. Empty: memory keeps it, until the power is off.
	Disk string
	// Wire is how the machine reaches the host.
	Wire Wire
}

// Machine is a machine that runs, or whose power is off. Its methods must not be called at
// the same time as PowerOff, PowerOn and Stop.
type Machine struct {
	options Options
	unlock  func() error // nil: there is nothing to stop
	folder  *tempdir.Dir
	cut     bool       // off the bridge
	cmd     *exec.Cmd  // nil: the power is off
	ended   chan error // one result, when the first process has been waited for
	output  bytes.Buffer
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

// Need skips a test of what this describes where no machine can be booted. As root, where the
// environment variable CI is set, the test fails instead: whatever is missing can be installed.
func Need(t testing.TB, what string) {
	t.Helper()
	why := Missing()
	switch {
	case why == "":
	case os.Geteuid() == 0 && os.Getenv("CI") != "":
		t.Fatalf("%s cannot be tested: %s", what, why)
	default:
		t.Skipf("NOT RUN: %s: %s", what, why)
	}
}

// Boot boots a machine that is alone on its wire with the host. binds are files of the
// host's, by their path in the machine.
func Boot(ctx context.Context, binds map[string]string) (*Machine, error) {
	return New(ctx, Options{Name: "machine", Binds: binds, Wire: Wire{Host: HostIP + "/30", Address: IP + "/30"}})
}

// New boots a machine. It returns when systemd reports that the machine has started. Another
// machine of that name is waited for.
func New(ctx context.Context, o Options) (*Machine, error) {
	m := &Machine{options: o}
	err := m.prepare(ctx)
	if err == nil {
		err = m.PowerOn(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("boot machine %s: %w", o.Name, err), m.Stop())
	}
	return m, nil
}

func (m *Machine) prepare(ctx context.Context) error {
	var err error
	if m.folder, err = tempdir.Make("machine"); err != nil {
		return err
	}
	if err := m.takeLock(ctx); err != nil {
		return err
	}
	for _, name := range []string{"root", "memory"} {
		if err := os.Mkdir(filepath.Join(m.folder.Path, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// PowerOn boots a machine whose power is off, and returns when systemd reports that it has
// started.
func (m *Machine) PowerOn(ctx context.Context) error {
	if err := removeGroups(m.options.Name); err != nil { // of one that crashed
		return err
	}
	if err := makeGroups(m.options.Name); err != nil {
		return err
	}
	input, err := m.start()
	if err != nil {
		return err
	}
	defer input.Close()
	if err := joinGroups(m.options.Name, m.cmd.Process.Pid); err != nil {
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

// PowerOff ends all that runs in the machine at once, as a power failure does. What was
// written stays if the machine has a disk, even what was not synced: the host lives on.
func (m *Machine) PowerOff() error {
	if m.cmd == nil {
		return nil
	}
	var errs []error
	_ = m.cmd.Process.Kill()
	if err := <-m.ended; err == nil { // the kernel has ended all others by then
		errs = append(errs, errors.New("the machine's first process had ended by itself"))
	}
	m.cmd = nil
	errs = append(errs, m.unwire(), removeGroups(m.options.Name))
	return errors.Join(errs...)
}

// takeLock waits until no other machine of this name runs.
func (m *Machine) takeLock(ctx context.Context) error {
	for {
		unlock, _, err := cluster.TryClaim(ctx, lockName(m.options.Name), m.folder.Path)
		if m.unlock = unlock; unlock != nil || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for another machine to stop: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func lockName(machine string) string { return "machine-" + machine }

// start starts the first process, which waits until its input ends.
func (m *Machine) start() (io.Closer, error) {
	argument, err := json.Marshal(plan{m.options.Name, m.folder.Path, m.options.Disk, m.options.Binds})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m.output.Reset()
	m.ended = make(chan error, 1)
	m.cmd = exec.Command(self) //nolint:noctx // it lives until PowerOff
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

// Stop ends all that runs in the machine, and leaves nothing of it but its disk.
func (m *Machine) Stop() error {
	var errs []error
	if m.unlock != nil {
		errs = append(errs, m.PowerOff())
	}
	if m.folder != nil {
		errs = append(errs, m.folder.Remove())
	}
	if m.unlock != nil {
		errs = append(errs, m.unlock())
	}
	m.folder, m.unlock = nil, nil
	return errors.Join(errs...)
}
