// Package process reads what a running program has used, from /proc.
package process

import (
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
func Resident(pid int) (int64, error) { return field(pid, "status", "VmRSS:") }

// Anonymous is the part of Resident that is the process's own: without pages of files, most of them
// the program's, which the kernel can drop and read again.
func Anonymous(pid int) (int64, error) { return field(pid, "status", "RssAnon:") }

// Peak is the most memory that the process has ever had, in bytes.
func Peak(pid int) (int64, error) { return field(pid, "status", "VmHWM:") }

// Written is how many bytes the process has had written to a disk.
func Written(pid int) (int64, error) { return field(pid, "io", "write_bytes:") }

// field is a number of bytes that a file of the process has behind a key.
func field(pid int, file, key string) (int64, error) {
	file = fmt.Sprintf("/proc/%d/%s", pid, file)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			number, inKiB := strings.CutSuffix(strings.TrimSpace(rest), " kB")
			n, err := strconv.ParseInt(number, 10, 64)
			if inKiB {
				n <<= 10
			}
			return n, err
		}
	}
	return 0, fmt.Errorf("no %s in %s", key, file)
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
