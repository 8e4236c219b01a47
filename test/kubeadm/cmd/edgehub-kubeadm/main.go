// Command edgehub-kubeadm plays the story of a kubeadm node behind a hub, on two machines of
// this host:
//
//	edgehub-kubeadm up --dir /tmp/edgehub-demo-node --hub ./bin/edgehub
//	edgehub-kubeadm kubectl get pods -A
//	edgehub-kubeadm run edge systemctl status edgehub
//	edgehub-kubeadm down
//
// A program in the background has the machines; up returns when the story is over, and they
// stay up. All name the same --dir.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/test/install/machine"
)

const usage = `usage: edgehub-kubeadm COMMAND [flags]

  up               play the story, and leave the machines up
  down             stop them
  kubectl ARGS     run kubectl as the cluster's administrator
  run MACHINE ARGS run a command on the machine control, or edge`

// options are what every command takes.
type options struct {
	dir, hub string
	args     []string
}

func main() {
	machine.BecomeInit()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "edgehub-kubeadm:", err)
		os.Exit(1)
	}
}

// defaultDir is that of --dir.
const defaultDir = "/tmp/edgehub-demo-node"

// split returns the flags of this program, which come first, and what is another program's: all else,
// flags such as kubectl's -n among them.
func split(args []string) (own, others []string) {
	i := 0
	for i < len(args) && (strings.HasPrefix(args[i], "--dir") || strings.HasPrefix(args[i], "--hub")) {
		if !strings.Contains(args[i], "=") {
			i++ // its value
		}
		i++
	}
	i = min(i, len(args))
	own, others = args[:i], args[i:]
	if len(others) > 0 && others[0] == "--" {
		others = others[1:]
	}
	return own, others
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, options) error{
		"up": up, "down": down, "run": runOn, serveCommand: serve,
		"kubectl": func(ctx context.Context, o options) error {
			o.args = append([]string{"control", "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf"}, o.args...)
			return runOn(ctx, o)
		},
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("%s", usage)
	}
	var o options
	fs := pflag.NewFlagSet(args[0], pflag.ContinueOnError)
	fs.StringVar(&o.dir, "dir", defaultDir, "folder of the machines, which must not be there yet")
	fs.StringVar(&o.hub, "hub", "bin/edgehub", "edgehub binary; edgehubctl is beside it")
	fs.Usage = func() { fmt.Printf("%s\n\nflags:\n%s", usage, fs.FlagUsages()) }
	own, others := split(args[1:])
	noMachine := args[0] == "run" && len(others) > 0 && strings.HasPrefix(others[0], "-")
	if args[0] != "run" && args[0] != "kubectl" || noMachine {
		own, others = args[1:], nil
	}
	if err := fs.Parse(own); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	o.args = others
	var err error
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	return commands[args[0]](ctx, o)
}
