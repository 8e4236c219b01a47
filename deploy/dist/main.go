// Command dist makes a release out of built programs: archives, container images, SBOMs and
// checksums. `make dist` builds the programs, and runs it.
//
//	go run . pack --out ../../dist --sources ../.. --version VERSION --revision COMMIT --date SECONDS
//	go run . push ../../dist registry.example.com/edgehub
//
// # What must hold
//
// The output depends only on the programs, LICENSE, README.md and the flags: not on the folder,
// the user, the umask, the order of files or the time. So whoever builds the same commit with
// the same Go gets the same bytes.
//
// Nothing is fetched: images hold one layer with static programs and nothing else. They have no
// CA certificates: the hub and the controller trust the CA of their kubeconfig or service
// account, and containerd pulls images.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/pflag"
)

const usage = `usage: dist pack --out DIR --sources DIR --version VERSION --revision COMMIT --date SECONDS
       dist push [--plain-http] DIR REGISTRY/PREFIX`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && args[0] == "pack":
		return runPack(args[1:])
	case len(args) > 0 && args[0] == "push":
		return runPush(ctx, args[1:])
	}
	return errors.New(usage)
}

func runPack(args []string) error {
	var r release
	var seconds int64
	flags := pflag.NewFlagSet("pack", pflag.ContinueOnError)
	flags.StringVar(&r.out, "out", "", "folder with linux-ARCHITECTURE/PROGRAM, for which the release is made, and where it goes")
	flags.StringVar(&r.sources, "sources", "", "folder with LICENSE and README.md")
	flags.StringVar(&r.version, "version", "", "version, as the programs tell it")
	flags.StringVar(&r.revision, "revision", "", "full hash of the commit")
	flags.Int64Var(&seconds, "date", 0, "date of everything, in seconds since 1970: that of the commit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || r.out == "" || r.sources == "" || r.version == "" || r.revision == "" || seconds <= 0 {
		return errors.New(usage)
	}
	r.date = time.Unix(seconds, 0).UTC()
	return r.pack()
}

func runPush(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("push", pflag.ContinueOnError)
	plain := flags.Bool("plain-http", false, "the registry has no TLS; one on this machine needs no such word")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errors.New(usage)
	}
	return push(ctx, flags.Arg(0), flags.Arg(1), *plain, os.Stdout)
}
