package kubeletconf

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ReadRunning is Read for the kubelet that runs with this --root-dir. It sees the files as kubelet does, which takes
// CAP_SYS_PTRACE. Anybody may call a program kubelet, so only root's processes count. proc is /proc.
func ReadRunning(proc, rootDir string, into any) error {
	want, err := os.Stat(rootDir)
	if err != nil {
		return fmt.Errorf("kubelet's --root-dir: %w", err)
	}
	processes, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return err
	}
	var roots []string
	var flags map[string]string
	for _, process := range processes {
		line, err := os.ReadFile(filepath.Join(process, "cmdline"))
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		if err != nil || filepath.Base(args[0]) != "kubelet" || !isRoots(process) {
			continue
		}
		root, its := filepath.Join(process, "root"), Flags(args)
		have, err := os.Stat(filepath.Join(root, cmp.Or(its["root-dir"], DefaultRootDir)))
		if err == nil && os.SameFile(want, have) {
			roots, flags = append(roots, root), its
		}
	}
	if len(roots) != 1 {
		return fmt.Errorf("%d processes of root that this program may look into are a kubelet with --root-dir %s", len(roots), rootDir)
	}
	return Read(roots[0], flags, into)
}

// isRoots reports whether the real user of a process is root. The owner of its folder is no proof: that is root, too, where
// the process must not be traced.
func isRoots(process string) bool {
	status, err := os.ReadFile(filepath.Join(process, "status"))
	return err == nil && strings.Contains(string(status), "\nUid:\t0\t")
}
