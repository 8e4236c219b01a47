package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/edgehub-io/edgehub/test/cluster/internal/nodeplan"
)

// bootIDSetting is the ID of the machine's boot, another one after each PowerOn.
const bootIDSetting = "kernel/random/boot_id"

// privateSysctls are the settings of the kernel that kubelet and the network
// plugins change, and the boot ID. In a node they are plain files that start with the host's
// values: the host's own never change, so that there is nothing to put back.
var privateSysctls = []string{
	bootIDSetting,
	"kernel/keys/root_maxbytes",
	"kernel/keys/root_maxkeys",
	"kernel/panic",
	"kernel/panic_on_oops",
	"net/ipv4/ip_forward",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
}

// sysctlFolder is where a node's folder has privateSysctls.
const sysctlFolder = "sysctl"

// sandbox is the process and mount namespaces of one node. Its first process
// ends everything in it when it ends; see package nodeinit.
type sandbox struct {
	init     *Process
	launcher *launcher // starts processes inside; nil until start
}

// start makes the namespaces and returns when processes can be started inside.
func (s *sandbox) start(ctx context.Context) error {
	if err := s.init.Start(ctx); err != nil {
		return err
	}
	pid := s.init.PID()
	if pid == 0 {
		return fmt.Errorf("%s has ended%s", s.init.Name(), logTail(s.init.LogFile()))
	}
	launcher, err := newLauncher(func() error { return enter(pid) })
	if err != nil {
		return fmt.Errorf("enter the namespaces of %s: %w", s.init.Name(), err)
	}
	s.launcher = launcher
	return nil
}

// stop ends whatever runs inside, and returns when it is gone.
func (s *sandbox) stop() error {
	err := s.init.Kill()
	if s.launcher != nil {
		s.launcher.close()
		s.launcher = nil
	}
	return err
}

// root is an absolute path of the node's as the host sees it while the node runs.
func (s *sandbox) root(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", s.init.PID(), path)
}

// enter moves the calling thread into the mount namespace of a process, and its
// children into its process namespace.
func enter(pid int) error {
	// A pidfd stands for the process in setns, and needs no /proc, which changes
	// on the way.
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(process)
	// A thread that shares root and working folder with others may not leave.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(process, unix.CLONE_NEWNS|unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	return nil
}

// newSandbox describes the sandbox of a node: /run is empty, /var/lib and
// /var/log are folders of the node's own.
func (c *Cluster) newSandbox(node string) (*sandbox, error) {
	plan := nodeplan.Plan{
		Empty: []string{"/run"},
		Binds: []nodeplan.Bind{
			{Source: c.path(node, "var-lib"), Target: "/var/lib"},
			{Source: c.path(node, "var-log"), Target: "/var/log"},
		},
		Keep: []string{c.dir, filepath.Dir(c.components.path)},
	}
	if program := c.containerds[c.options.containerdOf(node)]; program.folder != "" {
		plan.Keep = append(plan.Keep, program.folder)
	}
	for _, folder := range []string{"var-lib", "var-log"} {
		if err := os.MkdirAll(c.path(node, folder), 0o755); err != nil {
			return nil, err
		}
	}
	sysctls, err := copySysctls(c.path(node, sysctlFolder))
	if err != nil {
		return nil, err
	}
	plan.Binds = append(plan.Binds, sysctls...)
	argument, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}

	s := &sandbox{}
	s.init = c.newProcess(node+"/init", func() *exec.Cmd {
		cmd := command(c.programs.nodeinit, string(argument))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
		return cmd
	}, func(context.Context) error {
		_, err := os.Stat(s.root(nodeplan.Ready))
		return err
	})
	return s, nil
}

// copySysctls writes the present values to files in folder, and returns how
// they take the place of the real ones. A setting that this kernel does not
// have is left out.
func copySysctls(folder string) ([]nodeplan.Bind, error) {
	var binds []nodeplan.Bind
	for _, name := range privateSysctls {
		setting := "/proc/sys/" + name
		value, err := os.ReadFile(setting)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read sysctl: %w", err)
		}
		private := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(private), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(private, value, fs.FileMode(0o644)); err != nil {
			return nil, err
		}
		binds = append(binds, nodeplan.Bind{Source: private, Target: setting})
	}
	return binds, nil
}
