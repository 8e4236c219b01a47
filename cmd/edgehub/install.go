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

func commands() map[string]func(context.Context, []string) error {
	return map[string]func(context.Context, []string) error{
		"install": runInstall, "uninstall": runUninstall, "rotate-ca": runRotateCA,
		"kubelet-start": runKubeletStart, "rejoin": runRejoin, // of units that install writes
	}
}

func installFlags(o *install.Options) *pflag.FlagSet {
	fs := cli.NewFlags("edgehub install", help)
	o.AddFlags(fs)
	return fs
}

func runInstall(ctx context.Context, args []string) error {
	o := install.NewOptions()
	fs := installFlags(o)
	if err := cli.Parse(fs, args); err != nil {
		return err
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

func uninstallFlags(o *install.UninstallOptions) *pflag.FlagSet {
	fs := cli.NewFlags("edgehub uninstall", help)
	o.AddFlags(fs)
	return fs
}

func runUninstall(ctx context.Context, args []string) error {
	var o install.UninstallOptions
	if err := cli.ParseAlone(uninstallFlags(&o), args); err != nil {
		return err
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

func rotateFlags(wait *time.Duration) *pflag.FlagSet {
	fs := cli.NewFlags("edgehub rotate-ca", help)
	fs.DurationVar(wait, "wait", install.DefaultWait, "how long the hub may take to use the new CA")
	return fs
}

func runRotateCA(ctx context.Context, args []string) error {
	var wait time.Duration
	if err := cli.ParseAlone(rotateFlags(&wait), args); err != nil {
		return err
	}
	return install.RotateCA(ctx, wait, os.Stdout)
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
