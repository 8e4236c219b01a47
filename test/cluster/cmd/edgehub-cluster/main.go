// Command edgehub-cluster starts and stops a real cluster with real nodes on
// this machine:
//
//	edgehub-cluster up --nodes 2 --hub ./bin/edgehub [--controller ./bin/edgehub-controller]
//	edgehub-cluster kubectl get nodes
//	edgehub-cluster link node1 down
//	edgehub-cluster down
//
// A program in the background runs the cluster; up returns when it serves, down
// ends it. Both name the same --dir.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// command is one of the things this program does; args come after its name.
type command struct {
	name  string
	about string // empty: not for people
	run   func(ctx context.Context, args []string) error
}

func commands() []command {
	return []command{
		{"up", "start a cluster, and return when it serves", up},
		{"down", "stop the cluster, or clear away what is left of one", down},
		{"link", "cut a node off from the control plane, or connect it again: link NODE down|up", changeLink},
		{"kubectl", "run kubectl as the cluster's administrator", kubectl},
		{"build", "build Kubernetes now, instead of at the first start", build},
		{"prepare", "install what nodes need and this machine lacks", prepare},
		{serveCommand, "", serve},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "edgehub-cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage())
	}
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		return errors.New(usage())
	}
	err := all[i].run(ctx, args[1:])
	if errors.Is(err, pflag.ErrHelp) { // pflag has printed it
		return nil
	}
	return err
}

func usage() string {
	var text strings.Builder
	text.WriteString("usage: edgehub-cluster COMMAND [flags]\n\n")
	for _, c := range commands() {
		if c.about != "" {
			fmt.Fprintf(&text, "  %-8s  %s\n", c.name, c.about)
		}
	}
	text.WriteString("\nedgehub-cluster COMMAND --help tells the flags")
	return text.String()
}

func down(ctx context.Context, args []string) error {
	fs := pflag.NewFlagSet("down", pflag.ContinueOnError)
	dir := dirFlag(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := cluster.TakeDown(ctx, *dir); err != nil {
		return err
	}
	fmt.Println(stopped(*dir))
	return nil
}

// stopped is the message after a cluster in dir was stopped, with the place of its logs.
func stopped(dir string) string {
	logs := filepath.Join(dir, "logs")
	if _, err := os.Stat(logs); err != nil {
		return fmt.Sprintf("no cluster runs in %s", dir)
	}
	return fmt.Sprintf("no cluster runs in %s any more; its logs are kept in %s", dir, logs)
}

// kubectl becomes kubectl: only --dir in front is its own, all else is passed on.
func kubectl(_ context.Context, args []string) error {
	fs := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	fs.SetInterspersed(false)
	dir := dirFlag(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	script := filepath.Join(*dir, "bin", "kubectl")
	if _, err := os.Stat(script); err != nil {
		return fmt.Errorf("no cluster runs in %s; start one with up, or name its folder with --dir", *dir)
	}
	return syscall.Exec(script, append([]string{script}, fs.Args()...), os.Environ())
}

func build(ctx context.Context, args []string) error {
	if err := pflag.NewFlagSet("build", pflag.ContinueOnError).Parse(args); err != nil {
		return err
	}
	binary, err := cluster.BuildKubernetes(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Println(binary)
	return nil
}

func prepare(ctx context.Context, args []string) error {
	if err := pflag.NewFlagSet("prepare", pflag.ContinueOnError).Parse(args); err != nil {
		return err
	}
	return cluster.Prepare(ctx, os.Stdout)
}

func dirFlag(fs *pflag.FlagSet) *string {
	return fs.String("dir", filepath.Join(os.TempDir(), "edgehub-cluster"), "folder of the cluster's state and logs")
}
