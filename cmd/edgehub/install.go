package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

const installUsage = `edgehub install turns a node over that kubeadm has set up: its kubelet talks to a hub.
With a newer edgehub it upgrades the hub. It says what it does, and puts everything
back if the node does not come back.

  edgehub install --dry-run
  edgehub install
  edgehub install -- --cache-max-bytes=536870912     further flags of the hub

Flags:
`

const uninstallUsage = `edgehub uninstall puts everything back that edgehub install has changed. Pods that use
the hub need it until they restart: it says how, and has to be run again then.

Flags:
`

const rotateUsage = `edgehub rotate-ca replaces the CA that this node's pods verify the hub with. No pod
notices. The hub does the same once a year by itself.

Flags:
`

func runRotateCA(ctx context.Context, args []string) error {
	fs := newFlags("edgehub rotate-ca", rotateUsage)
	wait := rotateFlags(fs)
	if err := fs.Parse(args); err != nil {
		return flagError(err, "edgehub rotate-ca")
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: edgehub rotate-ca takes flags only; see edgehub rotate-ca --help", fs.Arg(0))
	}
	return install.RotateCA(ctx, *wait, os.Stdout)
}

func runKubeletStart(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("edgehub kubelet-start is for kubelet.service, and takes the node's kubeconfig")
	}
	return install.KubeletStart(ctx, args[0])
}

func runRejoin(ctx context.Context, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: edgehub rejoin is for edgehub-rejoin.service, and takes none", args[0])
	}
	return install.Rejoin(ctx, cli.Version(), cli.Safe(os.Stdout))
}

func rotateFlags(fs *pflag.FlagSet) (wait *time.Duration) {
	return fs.Duration("wait", install.DefaultWait, "how long the hub may take to use the new CA")
}

func runInstall(ctx context.Context, args []string) error {
	o := install.NewOptions()
	fs := newFlags("edgehub install", installUsage)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return flagError(err, "edgehub install")
	}
	if dash := fs.ArgsLenAtDash(); dash >= 0 {
		o.Extra = append([]string{}, fs.Args()[dash:]...) // not nil, even if none follow the dash
	}
	if fs.NArg() > len(o.Extra) {
		return fmt.Errorf("unexpected argument %q: flags of the hub come after --; see edgehub install --help", fs.Arg(0))
	}
	ctx, stop := outliveTerminal(ctx)
	defer stop()
	return install.Install(ctx, o, fs.Changed, cli.Version(), cli.Safe(os.Stdout)) // owners of pods have any name
}

func runUninstall(ctx context.Context, args []string) error {
	var o install.UninstallOptions
	fs := newFlags("edgehub uninstall", uninstallUsage)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return flagError(err, "edgehub uninstall")
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: edgehub uninstall takes flags only; see edgehub uninstall --help", fs.Arg(0))
	}
	ctx, stop := outliveTerminal(ctx)
	defer stop()
	return install.Uninstall(ctx, o, cli.Safe(os.Stdout))
}

// outliveTerminal makes a broken connection to the terminal end a change in order. Only output is lost.
func outliveTerminal(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

func newFlags(name, usage string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() { fmt.Fprint(os.Stderr, usage, fs.FlagUsages()) }
	return fs
}

// flagError returns nil for --help, whose text was printed by Parse.
func flagError(err error, command string) error {
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	return fmt.Errorf("%w; see %s --help", err, command)
}
