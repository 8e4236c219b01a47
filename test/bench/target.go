package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/test/bench/process"
)

// target is a proxy in a process of its own.
type target struct {
	name   string
	url    string
	client *http.Client
	gzip   bool // accept compressed answers, as client-go does; what they take to decompress is not measured
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
}

// startTarget runs a proxy that serves on address, and waits until it does.
func startTarget(ctx context.Context, name, address string, cmd *exec.Cmd) (*target, error) {
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t := &target{name: name, url: "http://" + address, client: &http.Client{Transport: transport}, cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // it is killed, or logs why it ends
		close(t.exited)
	}()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return t, conn.Close()
		}
		select {
		case <-t.exited:
			return nil, fmt.Errorf("%s has ended instead of serving on %s: %s", name, address, cmd.ProcessState)
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s does not serve on %s: %w", name, address, err), t.stop())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// speakTLS has t be asked over TLS and HTTP/2, as kubelet does, with a client certificate.
func (t *target) speakTLS(address string, pair tls.Certificate) {
	t.url = "https://" + address
	t.client = &http.Client{Transport: &http.Transport{
		DisableCompression: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}, //nolint:gosec // what is measured is this command's own
	}}
}

func (t *target) stop() error {
	if err := t.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-t.exited
	return nil
}

// resident is the memory of the process, in bytes.
func (t *target) resident() (int64, error) { return process.Resident(t.cmd.Process.Pid) }

// cpu is the processor time that the process has used.
func (t *target) cpu() (time.Duration, error) { return process.CPU(t.cmd.Process.Pid) }
