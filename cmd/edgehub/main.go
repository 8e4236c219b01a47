// Command edgehub is the hub of one edge node: the apiserver for the programs on the node, and the
// API with which the node's owner upgrades pods.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/hub"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/support"
)

//go:embed help
var help embed.FS

func main() { os.Exit(cli.Main("edgehub", run)) }

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && commands()[args[0]] != nil {
		return commands()[args[0]](ctx, args[1:])
	}
	options, logs := config.NewOptions(), cli.LogOptions{}
	fs := hubFlags(options, &logs)
	if err := cli.Parse(fs, args); err != nil {
		return err
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
	var lines support.Ring // first, since writing to it does not fail
	h, err := hub.New(c, "edgehub/"+cli.Version(), registry, logs.Logger(io.MultiWriter(&lines, os.Stderr)))
	if err != nil {
		return err
	}
	h.AddToBundle(support.Part{Name: "log.txt", Write: lines.CopyTo}, support.Flags(args))
	defer boundMemory(ctx)()
	return h.Run(ctx)
}

// hubFlags returns the flags of the hub, bound to options and logs.
func hubFlags(options *config.Options, logs *cli.LogOptions) *pflag.FlagSet {
	fs := cli.NewFlags("edgehub", help)
	options.AddFlags(fs)
	logs.AddFlags(fs)
	cli.AddVersion(fs)
	return fs
}
