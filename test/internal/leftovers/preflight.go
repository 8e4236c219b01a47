package leftovers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
)

// NotReadyError reports that a machine cannot run the tests.
type NotReadyError struct{ Shortages []Shortage }

// Shortage is one reason, in words: of what there is how much, how much tests need, and what
// a person can do.
type Shortage struct{ What, Has, Needs, Do string }

func (e *NotReadyError) Error() string {
	var all []string
	for _, s := range e.Shortages {
		all = append(all, fmt.Sprintf("%s: %s, tests need %s: %s", s.What, s.Has, s.Needs, s.Do))
	}
	return "this machine cannot run the tests: " + strings.Join(all, "; ")
}

// What tests need, with what was measured on two cores.
const (
	// needTemp is in bytes. The install suite has 0.13 GiB in its folders at most, and
	// kubeadm 0.5 GiB while it builds; the rest is for disks of machines and linkers.
	needTemp = 4 << 30
	// needMemory is in bytes: an estimate, for a control plane, a machine, two linkers and the
	// race detector.
	needMemory = 3 << 30
	// needInotify is in instances: a machine with kubelet and containerd has 19, and kubeadm
	// two such machines.
	needInotify = 40
	// needPorts is of those that freeport gives: an estimate, with several times what a suite takes.
	needPorts = 500
	// needCache is in bytes, for what a change has go build again: an estimate.
	needCache = 1 << 30
	// needColdCache is in bytes, where Kubernetes has to be built: all modules and all that
	// the go command keeps were 19 GiB.
	needColdCache = 20 << 30
)

// Preflight returns nil if this machine can run the tests, with nodes or without, or a
// *NotReadyError.
func Preflight(nodes bool) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the cache folder: %w", err)
	}
	var e NotReadyError
	if nodes && os.Geteuid() != 0 {
		e.add("user", "not root", "root for nodes", "run them as root: sudo -E make test")
	}
	errs := []error{
		e.disks(os.TempDir(), cache),
		e.memory(), e.inotify(),
	}
	e.ports()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("look whether this machine can run the tests: %w", err)
	}
	if len(e.Shortages) > 0 {
		return &e
	}
	return nil
}

func (e *NotReadyError) add(what, has, needs, do string) {
	e.Shortages = append(e.Shortages, Shortage{what, has, needs, do})
}

// disks looks for what is written while tests run, and for what is built and kept: on one
// file system they need the sum.
func (e *NotReadyError) disks(temp, cache string) error {
	needed := uint64(needCache)
	if built, err := filepath.Glob(filepath.Join(cache, "edgehub", "kubernetes-*")); err != nil || len(built) == 0 {
		needed = needColdCache
	}
	tempAt, tempErr := existing(temp)
	cacheAt, cacheErr := existing(cache)
	if err := errors.Join(tempErr, cacheErr); err != nil {
		return err
	}
	if tempAt.device == cacheAt.device {
		e.disk(temp, tempAt, needTemp+needed, "free some, or set TMPDIR or XDG_CACHE_HOME to a folder on another disk")
		return nil
	}
	e.disk(temp, tempAt, needTemp, "free some, or set TMPDIR to a folder on another disk")
	e.disk(cache, cacheAt, needed, "free some, or set XDG_CACHE_HOME to a folder on another disk")
	return nil
}

func (e *NotReadyError) disk(folder string, at fileSystem, need uint64, do string) {
	if at.free < need {
		e.add("disk", fmt.Sprintf("%s has %s free", folder, size(at.free)), size(need), do)
	}
}

// fileSystem is where a folder is: its device, and the bytes that are free there.
type fileSystem struct{ device, free uint64 }

// existing looks at a folder, or at the first above it that exists.
func existing(folder string) (fileSystem, error) {
	var at unix.Stat_t
	err := unix.Stat(folder, &at)
	if parent := filepath.Dir(folder); errors.Is(err, fs.ErrNotExist) && parent != folder {
		return existing(parent)
	}
	var s unix.Statfs_t
	if err == nil {
		err = unix.Statfs(folder, &s)
	}
	if err != nil {
		return fileSystem{}, fmt.Errorf("%s: %w", folder, err)
	}
	return fileSystem{at.Dev, s.Bavail * uint64(s.Bsize)}, nil
}

func (e *NotReadyError) memory() error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // MemAvailable: 23000000 kB
		if len(fields) < 2 || fields[0] != "MemAvailable:" {
			continue
		}
		kilobytes, err := strconv.ParseUint(fields[1], 10, 64)
		if free := kilobytes << 10; err == nil && free < needMemory {
			e.add("memory", size(free)+" is available", size(needMemory), "end what uses it")
		}
		return err
	}
	return errors.New("/proc/meminfo has no MemAvailable")
}

// inotify counts the instances of this user. Those of containers, which have a limit of the
// same user, count, too: a kubelet or a containerd that gets none does not start.
func (e *NotReadyError) inotify() error {
	const setting = "/proc/sys/fs/inotify/max_user_instances"
	text, err := os.ReadFile(setting)
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	open, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return err
	}
	used := 0
	for _, file := range open {
		if target, _ := os.Readlink(file); target == "anon_inode:inotify" {
			used++
		}
	}
	if free := limit - used; free < needInotify {
		e.add("inotify instances", fmt.Sprintf("%d of %d are free", free, limit), strconv.Itoa(needInotify),
			fmt.Sprintf("as root: sysctl fs.inotify.max_user_instances=%d", max(used+2*needInotify, limit)))
	}
	return nil
}

func (e *NotReadyError) ports() {
	if free := freeport.Free(needPorts); free < needPorts {
		e.add("ports", fmt.Sprintf("%d are free", free), strconv.Itoa(needPorts), "end other runs of tests")
	}
}

// size is in words for people.
func size(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }
