// Package process reads what a running program has used, from /proc.
package process

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc: USER_HZ, 100 on every
// architecture that Go runs on.
const clockTick = time.Second / 100

// Resident is the memory of the process, in bytes.
func Resident(pid int) (int64, error) { return memory(pid, "VmRSS:") }

// Anonymous is the part of Resident that is the process's own: without pages of files, most of them
// the program's, which the kernel can drop and read again.
func Anonymous(pid int) (int64, error) { return memory(pid, "RssAnon:") }

// Peak is the most memory that the process has ever had, in bytes.
func Peak(pid int) (int64, error) { return memory(pid, "VmHWM:") }

func memory(pid int, key string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), key); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/status", key, pid)
}

// CPU is the processor time that the process has used.
func CPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// Fields 14 and 15, utime and stime, counted behind the name in brackets.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// Written is how many bytes the process has had written to a disk.
func Written(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			return strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
		}
	}
	return 0, fmt.Errorf("no write_bytes in /proc/%d/io", pid)
}

// Child is the first process that a process has started and that lives.
func Child(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0, fmt.Errorf("process %d has no children", pid)
	}
	return strconv.Atoi(fields[0])
}
