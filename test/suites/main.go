// Command suites runs edgehub's tests:
//
//	go run ./suites                      the gate, which .ci/run runs: what every change must pass
//	go run ./suites --all                every suite
//	go run ./suites --only=cache,node    these
//	go run ./suites --list               what there is, and what each needs
//	go run ./suites --check              only whether this machine can run the gate
//
// Every suite runs, also after one has failed. When all have ended, a test that failed runs once
// more, alone; if it passes then, the run passes, and the test is listed as FLAKY with its first
// output. Three things are final at once: a data race, a panic, and a wrong answer. At most
// maxFlaky tests may be flaky in a passing run. The end of the output has the failures, a table
// of the suites, and where the whole log is, which is outside the checkout.
//
// Exit code: 0 passed, 1 a suite failed, 2 wrong usage, 3 this machine cannot run them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/leftovers"
)

const (
	exitFailed = 1
	exitUsage  = 2
	// exitMachine tells a machine that cannot run the suites from a change that fails them.
	exitMachine = 3
)

type options struct {
	all, list, check bool
	only             []string
	seed             int
}

func main() {
	var o options
	flags := pflag.NewFlagSet("suites", pflag.ContinueOnError)
	flags.BoolVar(&o.all, "all", false, "run every suite, not only the gate")
	flags.BoolVar(&o.list, "list", false, "list the suites, and run none")
	flags.BoolVar(&o.check, "check", false, "only check whether this machine can run them")
	flags.StringSliceVar(&o.only, "only", nil, "run only these suites, of all: names, with commas between them")
	flags.IntVar(&o.seed, "seed", 1+rand.IntN(1_000_000), "the seed of random suites")
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, o, os.Stdout)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, o options, out io.Writer) int {
	chosen, err := choose(all(), o)
	if err != nil {
		fmt.Fprintln(out, "suites:", err)
		return exitUsage
	}
	if o.list {
		list(out, chosen)
		return 0
	}
	if err := preflight(chosen); err != nil {
		fmt.Fprintln(out, "suites:", err)
		return exitMachine
	}
	if o.check {
		return 0
	}
	if err := leftovers.Clean(ctx, io.Discard); err != nil {
		fmt.Fprintln(out, "suites:", err)
		return exitMachine
	}
	folder, err := leftovers.NewRun()
	if err != nil {
		fmt.Fprintln(out, "suites:", err)
		return exitMachine
	}
	r, err := newRunner(ctx, o.seed, out)
	if err != nil {
		fmt.Fprintln(out, "suites:", err)
		return exitMachine
	}
	r.env = append(r.env, folder.Env(), hubproc.ProgramsVariable+"="+filepath.Join(r.root, "bin"))
	defer r.out.keep()()
	r.buildInBackground(ctx, chosen)
	r.suites(ctx, chosen)
	r.repeat(ctx)
	if err := folder.Close(); err != nil {
		r.say("the run's folder stays: %v", err)
	}
	code := r.report(ctx)
	_ = r.log.Close()
	return code
}

// choose returns the suites that are asked for, in their order, and the one that builds their
// programs.
func choose(suites []suite, o options) ([]suite, error) {
	for _, name := range o.only {
		if !slices.ContainsFunc(suites, func(s suite) bool { return s.name == name }) {
			return nil, fmt.Errorf("there is no suite %q; there are: %s", name, strings.Join(names(suites), ", "))
		}
	}
	only := o.only
	if slices.ContainsFunc(suites, func(s suite) bool { return s.programs && slices.Contains(only, s.name) }) {
		only = append(slices.Clone(only), "build")
	}
	return slices.DeleteFunc(suites, func(s suite) bool {
		switch {
		case len(only) > 0:
			return !slices.Contains(only, s.name)
		case o.all || o.list:
			return false
		default:
			return !s.gate
		}
	}), nil
}

func names(suites []suite) []string {
	var all []string
	for _, s := range suites {
		all = append(all, s.name)
	}
	return all
}

// checkout is the folder of the product's module, from where this runs or below it.
func checkout(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err == nil {
		return strings.TrimSpace(string(out)), nil
	}
	// Without git, as in an archive of the sources: `make` starts this in test.
	dir, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "Makefile")); err != nil {
		return "", errors.New("start this in the folder test of a checkout of edgehub")
	}
	return dir, nil
}
