package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// initVariable in the environment names the folder of the machine, and makes the test's
// own program the machine's first process until it becomes systemd.
const initVariable = "EDGEHUB_TEST_MACHINE"

// Systemd is the program; Debian's path.
const systemd = "/lib/systemd/systemd"

// BecomeInit has to be the first call of TestMain. It does not return in the process
// that is to be a machine's first.
func BecomeInit() {
	argument := os.Getenv(initVariable)
	if argument == "" || os.Getpid() != 1 {
		return
	}
	err := becomeMachine(argument)
	if err == nil {
		// SYSTEMD_UNIT_PATH: the host's units, which clean up its /tmp among other
		// things, are nobody's here.
		env := []string{"container=edgehub-test", "SYSTEMD_UNIT_PATH=/etc/systemd/system:" + unitFolder, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		err = unix.Exec(systemd, []string{systemd, "--system", "--log-target=journal", "--show-status=no"}, env)
	}
	fmt.Fprintln(os.Stderr, "machine:", err)
	os.Exit(1)
}

func becomeMachine(argument string) error {
	var p plan
	if err := json.Unmarshal([]byte(argument), &p); err != nil {
		return err
	}
	// The test moves this process into the machine's control groups, and ends its input.
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	runtime.LockOSThread() // a namespace is a thread's, and the one that execs wins
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare control groups: %w", err)
	}
	return arrange(p)
}

// plan is what the test passes to the first process.
type plan struct {
	Name   string
	Folder string            // on the host: for mount points
	Disk   string            // on the host: what is written; empty: memory
	Binds  map[string]string // by the path in the machine, what of the host's is there
}

// privateSettings are what kubelet and network plugins write: plain files here. All other
// settings are for reading, but for those of the network, which is the machine's own.
var privateSettings = []string{
	"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
	"vm/overcommit_memory", "vm/panic_on_oom",
}

// devices that programs expect; all others of the host's stay out.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// arrange makes the file system and enters it. Nothing is written to a path of the
// host's: the new root is complete before anything is put into it.
func arrange(p plan) error {
	root := filepath.Join(p.Folder, "root")
	memory := filepath.Join(p.Folder, "memory")
	do := &mounts{}
	do.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	do.mount("tmpfs", memory, "tmpfs", 0, "mode=0755")
	disk := memory
	if p.Disk != "" {
		disk = p.Disk
	}
	do.mkdir(disk+"/upper", disk+"/work")
	do.mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+disk+"/upper,workdir="+disk+"/work")
	for _, dir := range []string{"/run", "/tmp", "/dev", "/var/tmp"} {
		do.mkdir(root + dir)
		do.mount("tmpfs", root+dir, "tmpfs", 0, "mode=0755")
	}
	// The host's own units and what it has enabled stay out, and its containers.
	for _, dir := range []string{"/etc/systemd/system", "/var/lib/kubelet", "/var/lib/containerd", "/var/log"} {
		do.mkdir(root + dir)
		if p.Disk == "" {
			do.mount("tmpfs", root+dir, "tmpfs", 0, "mode=0755")
			continue
		}
		own := filepath.Join(p.Disk, "folders", dir)
		do.mkdir(own)
		do.bind(own, root+dir)
	}
	do.mount("proc", root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	do.settings(root, memory)
	do.mount("sysfs", root+"/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	do.cgroups(root)
	do.devices(root)
	do.files(root, p.Binds)
	do.write(root+"/etc/hostname", []byte(p.Name+"\n"))
	if do.err != nil {
		return do.err
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	// The old root is put under the new one, and let go.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter the machine's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the host's root: %w", err)
	}
	// kubelet and the runtime pass mounts on to containers.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts within the machine: %w", err)
	}
	return unix.Chdir("/")
}

// files puts the host's files in place, and the few units that every machine has.
func (m *mounts) files(root string, binds map[string]string) {
	for target, source := range binds {
		m.write(root+target, nil)
		m.bind(source, root+target)
	}
	for name, text := range baseUnits {
		m.write(root+unitFolder+"/"+name, []byte(text))
	}
	for _, name := range journalUnits {
		text, err := os.ReadFile("/lib/systemd/system/" + name)
		m.err = errors.Join(m.err, err)
		m.write(root+unitFolder+"/"+name, text)
	}
	m.write(root+"/etc/systemd/journald.conf", []byte("[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\n"))
}

func (m *mounts) write(path string, content []byte) {
	m.mkdir(filepath.Dir(path))
	if m.err == nil {
		m.err = os.WriteFile(path, content, 0o644)
	}
}

// mounts does one thing after the other until one fails.
type mounts struct{ err error }

func (m *mounts) mount(source, target, kind string, flags uintptr, data string) {
	if m.err != nil {
		return
	}
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		m.err = fmt.Errorf("mount %s on %s: %w", kind, target, err)
	}
}

func (m *mounts) bind(source, target string) { m.mount(source, target, "", unix.MS_BIND, "") }

func (m *mounts) mkdir(folders ...string) {
	for _, folder := range folders {
		if m.err == nil {
			m.err = os.MkdirAll(folder, 0o755)
		}
	}
}

func (m *mounts) settings(root, memory string) {
	all := root + "/proc/sys"
	m.bind(all, all)
	m.mount("", all, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	for _, name := range privateSettings {
		value, err := os.ReadFile(filepath.Join(all, name))
		if errors.Is(err, fs.ErrNotExist) || m.err != nil {
			continue
		}
		private := filepath.Join(memory, "settings", strings.ReplaceAll(name, "/", "."))
		m.mkdir(filepath.Dir(private))
		if m.err == nil {
			m.err = errors.Join(err, os.WriteFile(private, value, 0o644))
		}
		m.bind(private, filepath.Join(all, name))
	}
	m.mount("proc", root+"/mnt", "proc", 0, "")
	m.bind(root+"/mnt/sys/net", all+"/net")
	if m.err == nil {
		m.err = unix.Unmount(root+"/mnt", unix.MNT_DETACH)
	}
}

// cgroups mounts the hierarchies that the host has. The machine is in a namespace of
// control groups: it sees, and changes, only what is below its own.
func (m *mounts) cgroups(root string) {
	base := root + "/sys/fs/cgroup"
	hierarchies, err := Hierarchies()
	if err != nil {
		m.err = errors.Join(m.err, err)
		return
	}
	if hierarchies[0].Options == "" && len(hierarchies) == 1 {
		m.mount("cgroup2", base, "cgroup2", 0, "")
		return
	}
	m.mount("tmpfs", base, "tmpfs", 0, "mode=0755")
	for _, h := range hierarchies {
		target := filepath.Join(base, filepath.Base(h.Path))
		m.mkdir(target)
		kind := "cgroup"
		if h.Options == "" {
			kind = "cgroup2"
		}
		m.mount("cgroup", target, kind, 0, h.Options)
	}
}

func (m *mounts) devices(root string) {
	for _, name := range devices {
		target := filepath.Join(root, "dev", name)
		if m.err == nil {
			m.err = os.WriteFile(target, nil, 0o666)
		}
		m.bind("/dev/"+name, target)
	}
	// kubelet watches the kernel's messages for processes that were killed.
	for _, name := range []string{"kmsg", "console"} {
		if m.err == nil {
			m.err = os.Symlink("null", filepath.Join(root, "dev", name))
		}
	}
	m.mkdir(root+"/dev/pts", root+"/dev/shm", root+"/dev/mqueue")
	m.mount("devpts", root+"/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666")
	if m.err == nil {
		m.err = errors.Join(
			os.Symlink("pts/ptmx", root+"/dev/ptmx"),
			os.Symlink("/proc/self/fd", root+"/dev/fd"),
			os.Symlink("/proc/self/fd/1", root+"/dev/stdout"),
			os.Symlink("/proc/self/fd/2", root+"/dev/stderr"))
	}
	m.mount("tmpfs", root+"/dev/shm", "tmpfs", 0, "")
	m.mount("mqueue", root+"/dev/mqueue", "mqueue", 0, "")
}
