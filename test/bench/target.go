package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// target is a proxy in a process of its own.
type target struct {
	name   string
	url    string
	client *http.Client
	cmd    *exec.Cmd
}

// startTarget runs a proxy that serves on address, and waits until it does.
func startTarget(ctx context.Context, name, address string, cmd *exec.Cmd) (*target, error) {
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t := &target{name: name, url: "http://" + address, client: &http.Client{Transport: transport}, cmd: cmd}
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return t, conn.Close()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s does not serve on %s: %w", name, address, err), t.stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (t *target) stop() error {
	if err := t.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = t.cmd.Wait() // it says: killed
	return nil
}

// resident is the memory of the process, in bytes, as /proc tells.
func (t *target) resident() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("no VmRSS in /proc")
}

// clockTick is the unit of CPU times in /proc: USER_HZ, 100 on every
// architecture that Go runs on.
const clockTick = time.Second / 100

// cpu is the processor time that the process has used.
func (t *target) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", t.cmd.Process.Pid))
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

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
