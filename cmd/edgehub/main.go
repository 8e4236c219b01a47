// Command edgehub is the hub of one edge node: the apiserver for the programs on the node, and the
// API with which the node's owner upgrades pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/hub"
	"github.com/edgehub-io/edgehub/hub/bundle"
	"github.com/edgehub-io/edgehub/hub/config"
)

const usage = `edgehub stands between the Kubernetes clients of one edge node and the apiserver.

  edgehub --node-name NAME --server-addr https://APISERVER:6443 --kubeconfig FILE
  edgehub install      turns a kubeadm node over to a hub, or upgrades it; see --help
  edgehub uninstall    gives it back
  edgehub rotate-ca    replaces the CA that the node's pods verify the hub with

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "edgehub:", err)
		os.Exit(1)
	}
}

// hubFlags returns the flags of the hub, bound to options and logs, and the value of --version.
func hubFlags(options *config.Options, logs *cli.LogOptions) (fs *pflag.FlagSet, showVersion *bool) {
	fs = newFlags("edgehub", usage)
	options.AddFlags(fs)
	logs.AddFlags(fs)
	showVersion = fs.Bool("version", false, "print the version and exit")
	return fs, showVersion
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, []string) error{
		"install": runInstall, "uninstall": runUninstall, "rotate-ca": runRotateCA,
		"kubelet-start": runKubeletStart, "rejoin": runRejoin, // of units that install writes
	}
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](ctx, args[1:])
	}
	options, logs := config.NewOptions(), cli.LogOptions{}
	fs, showVersion := hubFlags(options, &logs)
	if err := fs.Parse(args); err != nil {
		return flagError(err, "edgehub")
	}
	if *showVersion {
		fmt.Println(cli.VersionLine("edgehub"))
		return nil
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unknown command %q: want install, uninstall, rotate-ca, or flags of the hub; see edgehub --help", fs.Arg(0))
	}
	c, err := options.Config()
	if err := errors.Join(err, logs.Validate()); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var lines bundle.Ring // first, since writing to it does not fail
	h, err := hub.New(c, "edgehub/"+cli.Version(), registry, logs.Logger(io.MultiWriter(&lines, os.Stderr)))
	if err != nil {
		return err
	}
	h.AddToBundle(bundle.Part{Name: "log.txt", Write: lines.CopyTo}, bundle.Flags(args))
	defer boundMemory(ctx)()
	return h.Run(ctx)
}
