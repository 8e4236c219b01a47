package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/kubeadm"
)

const (
	// serveCommand is how up starts this program in the background.
	serveCommand = "serve"
	// reportsFD is the pipe to up: what people read, and at the end a mark of how it went.
	reportsFD = 3
)

const lookAround = `
%[1]s
        bin/edgehub-kubeadm kubectl%[2]s get pods -A -o wide          the cloud's view
        bin/edgehub-kubeadm run%[2]s edge systemctl status edgehub    how the hub is doing
        bin/edgehub-kubeadm run%[2]s edge journalctl -u kubelet       what kubelet has said
        bin/edgehub-kubeadm down%[2]s                                 stops them
`

// The marks that end what serve writes.
var succeeded, failed = []byte{0}, []byte{1}

// up starts serve in the background, shows what it writes, and returns when the story is over.
// An interrupt before that takes everything down.
func up(ctx context.Context, o options) error {
	if err := cluster.Prepare(ctx, os.Stdout); err != nil {
		return err
	}
	pids, err := servers(o.dir)
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		return fmt.Errorf("machines are up in %s; stop them first: edgehub-kubeadm down --dir %[1]s", o.dir)
	}
	if err := removeLeftovers(o.dir); err != nil {
		return err
	}
	if _, err := os.Lstat(o.dir); err == nil {
		return fmt.Errorf("%s is there already, and nothing says that it is of machines that were up once: remove it, or name another folder with --dir", o.dir)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	hub, err := filepath.Abs(o.hub)
	if err != nil {
		return err
	}
	reports, reporter, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reports.Close()
	cmd := exec.Command(self, serveCommand, "--dir", o.dir, "--hub", hub) //nolint:noctx // it lives on when up has returned
	cmd.ExtraFiles = []*os.File{reporter}                                 // becomes reportsFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	reporter.Close()
	if err != nil {
		return err
	}
	interrupted := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer interrupted()
	mark, err := show(os.Stdout, reports)
	switch {
	case err != nil:
		return err
	case bytes.Equal(mark, succeeded):
		return nil
	case bytes.Equal(mark, failed):
		return errors.New("the story did not come true")
	}
	return errors.Join(errors.New("the machines could not be started, or were stopped"), cmd.Wait(), context.Cause(ctx))
}

// show passes on what it reads until the end, without a mark, which it returns.
func show(out io.Writer, in io.Reader) (mark []byte, err error) {
	buffer := make([]byte, 4096)
	for {
		n, err := in.Read(buffer)
		text := buffer[:n]
		for _, m := range [][]byte{succeeded, failed} {
			if bytes.HasSuffix(text, m) {
				mark, text = m, bytes.TrimSuffix(text, m)
			}
		}
		if _, err := out.Write(text); err != nil {
			return nil, err
		}
		if errors.Is(err, io.EOF) {
			return mark, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// serve plays the story, and has the machines until it is told to end.
func serve(ctx context.Context, o options) error {
	// up reads until the last copy of the pipe is closed: the machines must not have one.
	syscall.CloseOnExec(reportsFD)
	reports := os.NewFile(reportsFD, "reports")
	if reports == nil {
		return fmt.Errorf("%s is not for people; use up", serveCommand)
	}
	defer reports.Close()
	if err := os.Mkdir(o.dir, 0o755); err != nil {
		fmt.Fprintln(reports, err)
		return fmt.Errorf("make the folder, which Stop removes: %w", err)
	}
	c, err := kubeadm.Start(ctx, kubeadm.Options{Dir: o.dir, Hub: o.hub, Log: reports})
	if err != nil {
		fmt.Fprintln(reports, err)
		return err
	}
	mark, end := succeeded, "All of it came true. The machines are still up:"
	if err := c.Tell(ctx, reports); err != nil {
		mark, end = failed, fmt.Sprintf("FAILED: %v\nThe machines are still up:", err)
	}
	where := ""
	if o.dir != defaultDir {
		where = " --dir=" + o.dir
	}
	fmt.Fprintf(reports, lookAround, end, where)
	_, _ = reports.Write(mark)
	_ = reports.Close()
	<-ctx.Done()
	return c.Stop()
}
