package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// upOptions are the flags of up, which serve gets unchanged.
type upOptions struct {
	dir        string
	nodes      int
	kubernetes string
	hub        string
	controller string

	hubArgs, controllerArgs, apiserverArgs, controllerManagerArgs []string
}

func parseUp(args []string) (*upOptions, error) {
	o := &upOptions{}
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	dir := dirFlag(fs)
	fs.IntVar(&o.nodes, "nodes", 2, "number of nodes; 0: the control plane only, which does not take root")
	fs.StringVar(&o.kubernetes, "kubernetes", "", "Kubernetes binary, or folder with one for each component; empty: built once, and kept in the user's cache folder")
	fs.StringVar(&o.hub, "hub", "", "edgehub binary; required with nodes")
	fs.StringVar(&o.controller, "controller", "", "edgehub-controller binary; empty: none is run")
	fs.StringArrayVar(&o.hubArgs, "hub-arg", nil, "further argument for every hub; may be repeated")
	fs.StringArrayVar(&o.controllerArgs, "controller-arg", nil, "further argument for edgehub-controller; may be repeated")
	fs.StringArrayVar(&o.apiserverArgs, "apiserver-arg", nil, "further argument for kube-apiserver; may be repeated")
	fs.StringArrayVar(&o.controllerManagerArgs, "controller-manager-arg", nil, "further argument for kube-controller-manager; may be repeated")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("up takes flags only, not %q", fs.Arg(0))
	}
	var err error
	o.dir, err = filepath.Abs(*dir)
	return o, err
}

func (o *upOptions) clusterOptions() cluster.Options {
	return cluster.Options{
		Dir:           o.dir,
		Nodes:         o.nodes,
		KubernetesBin: o.kubernetes,
		HubBin:        o.hub,
		ControllerBin: o.controller,
		HubArgs:       func(string) []string { return o.hubArgs },

		ControllerArgs: o.controllerArgs, APIServerArgs: o.apiserverArgs, ControllerManagerArgs: o.controllerManagerArgs,
	}
}

// up starts serve in the background, shows what that reports, and returns when
// it serves. An interrupt takes down what has been started.
func up(ctx context.Context, args []string) error {
	o, err := parseUp(args)
	if err != nil {
		return err
	}
	if o.nodes > 0 {
		if err := cluster.Prepare(ctx, os.Stdout); err != nil {
			return err
		}
	}
	background, reports, err := startServe(o, args)
	if err != nil {
		return fmt.Errorf("start the cluster: %w", err)
	}
	interrupted := context.AfterFunc(ctx, func() { _ = background.Process.Signal(syscall.SIGTERM) })
	defer interrupted()

	served := &lastByte{out: os.Stdout}
	_, err = io.Copy(served, reports)
	if err == nil && served.is(readyMark) {
		return nil
	}
	return errors.Join(err, background.Wait(), context.Cause(ctx))
}

// startServe starts this program again in a session of its own, so that it
// lives on when the terminal is closed.
func startServe(o *upOptions, args []string) (*exec.Cmd, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	logFile := filepath.Join(o.dir, "logs", "cluster.log")
	if err := os.MkdirAll(filepath.Dir(logFile), 0o755); err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	reports, reporter, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer reporter.Close()

	//nolint:noctx // it lives on when up has returned
	cmd := exec.Command(self, append([]string{serveCommand}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{reporter} // becomes reportsFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	return cmd, reports, nil
}

// lastByte passes on what is written, except readyMark at the end.
type lastByte struct {
	out  io.Writer
	last byte
}

func (l *lastByte) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	l.last = p[len(p)-1]
	text := p
	if l.is(readyMark) {
		text = p[:len(p)-1]
	}
	if _, err := l.out.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (l *lastByte) is(mark byte) bool { return l.last == mark }

// lookAround shows people what they can do with a cluster.
func lookAround(c *cluster.Cluster) string {
	text := "\nlook around:  " + c.KubectlPath() + " get nodes,pods -A\n"
	for _, node := range c.Nodes() {
		text += node.Name() + "'s hub:  curl " + node.APIURL() + "/v1/readyz\n"
	}
	text += "logs:         " + c.LogDir() + "\n"
	for _, version := range []string{"v1", "v2"} {
		if len(c.Nodes()) > 0 {
			text += "image " + version + ":     " + c.Image(version) + "\n"
		}
	}
	return text + "stop:         edgehub-cluster down --dir " + strconv.Quote(c.Dir()) + "\n"
}
