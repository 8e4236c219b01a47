// Command edgehub-controller carries out, in the cloud, the update strategies
// that DaemonSets opt into. See package controller for what it does.
//
// Several replicas may run: a lease decides which one works. Each serves metrics and health
// probes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "edgehub-controller:", err)
		os.Exit(2)
	case cfg.version:
		fmt.Println(cli.VersionLine(name))
		return
	}
	if err := run(ctx, cfg, cfg.log.Logger(os.Stderr)); err != nil {
		fmt.Fprintln(os.Stderr, "edgehub-controller:", err)
		os.Exit(1)
	}
}
