package leftovers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
)

// programs are those that tests start and that work on folders. Another program that does
// is a person's, who reads a log.
var programs = []string{"edgehub", "edgehub-controller", "kubernetes", "containerd", "containerd-shim-runc-v2", "nodeinit"} //nolint:gochecknoglobals // never changed

// endProcesses kills what runs in the folders, what works on them, and what a [Run] has
// started of which one is the folder. It returns when they are gone.
func endProcesses(ctx context.Context, folders []*tempdir.Dir, found found) error {
	told := map[int]bool{}
	for {
		left, err := strayProcesses(folders)
		if err != nil || len(left) == 0 {
			return err
		}
		for _, p := range left {
			if !told[p.pid] {
				told[p.pid] = true
				found("process", fmt.Sprintf("%s (%d)", p.name, p.pid))
			}
			if err := p.kill(); err != nil {
				return fmt.Errorf("kill %s (%d): %w", p.name, p.pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s (%d) does not end: %w", left[0].name, left[0].pid, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// process is one that is to end.
type process struct {
	pid     int
	name    string
	folders []*tempdir.Dir // for which it is
}

// strayProcesses are without this process and those that it is a child of.
func strayProcesses(folders []*tempdir.Dir) ([]process, error) {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	own := ancestors()
	var stray []process
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || own[pid] || !belongs(pid, folders) {
			continue
		}
		name, _ := os.ReadFile(dir + "/comm")
		stray = append(stray, process{pid, strings.TrimSpace(string(name)), folders})
	}
	return stray, nil
}

// belongs is false for a process that has ended, reaped or not.
func belongs(pid int, folders []*tempdir.Dir) bool {
	dir := fmt.Sprintf("/proc/%d/", pid)
	exe, err := os.Readlink(dir + "exe")
	if err != nil {
		return false
	}
	exe = strings.TrimSuffix(exe, " (deleted)")
	if within(exe, folders) {
		return true
	}
	for _, variable := range words(dir + "environ") {
		if run, ok := strings.CutPrefix(variable, runVariable+"="); ok && within(run, folders) {
			return true
		}
	}
	name, _, _ := strings.Cut(filepath.Base(exe), "-v") // kubernetes-v1.37.2-…
	if !slices.Contains(programs, name) {
		return false
	}
	for _, argument := range words(dir + "cmdline") {
		for _, f := range folders {
			if strings.Contains(argument+"/", f.Path+"/") {
				return true
			}
		}
	}
	return false
}

// words are what the kernel ends with a zero byte each.
func words(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
}

// kill makes sure that the process is still the one that was looked at.
func (p process) kill() error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !belongs(p.pid, p.folders) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// ancestors are this process and those that it is a child of.
func ancestors() map[int]bool {
	all := map[int]bool{}
	for pid := os.Getpid(); pid > 1 && !all[pid]; pid = parent(pid) {
		all[pid] = true
	}
	return all
}

// parent is 0 for a process that is gone.
func parent(pid int) int {
	_, parent, _ := status(strconv.Itoa(pid))
	of, _ := strconv.Atoi(parent)
	return of
}

// lives reports whether there is a process with this ID that has not ended.
func lives(pid string) bool {
	state, _, err := status(pid)
	return err == nil && state != "Z" && state != "X"
}

func status(pid string) (state, parent string, err error) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", "", err
	}
	_, err = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent)
	return state, parent, err
}
