package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/nodes"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/workload"
)

const name = "kubectl-edgehub"

// streams are where output goes.
type streams struct{ out, err io.Writer }

// options are the values of the flags. All commands share one set of flags, which may
// stand before and behind the command.
type options struct {
	connection
	watch   bool
	nodes   bool
	all     bool // namespaces
	output  string
	timeout time.Duration
	ready   bool // not to wait for nodes that are not
	help    bool
	version bool
}

func (o *options) flags() *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.Usage = func() {} // errors name the command that prints help
	fs.BoolVarP(&o.watch, "watch", "w", false, "wait until nothing is left to do")
	fs.BoolVar(&o.nodes, "nodes", false, "print a row for each node")
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "a line for each DaemonSet and StatefulSet that opted in, of all namespaces")
	fs.StringVarP(&o.output, "output", "o", "", "json prints JSON, for programs; empty: text")
	fs.DurationVar(&o.timeout, "timeout", 0, "how long --watch waits at most; 0: without limit")
	fs.BoolVar(&o.ready, "ready-only", false, "do not wait with --watch for nodes that are not Ready")
	fs.BoolVarP(&o.help, "help", "h", false, "print help, also for a command")
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	o.addFlags(fs)
	return fs
}

// command is one verb.
type command struct {
	help  string
	takes []string // of the flags that are not for all commands
	run   func(ctx context.Context, words []string, o *options, s streams) (progress.ExitCode, error)
}

// verbs are the commands, as errors name them.
const verbs = "status, pause, resume, nodes, release or completion"

// statusFlags are for the command status, and some of them for others.
func statusFlags() []string {
	return []string{"watch", "nodes", "all-namespaces", "output", "timeout", "ready-only"}
}

func commands() map[string]command {
	return map[string]command{
		"status":     {help: helpStatus, takes: statusFlags(), run: runStatus},
		"pause":      {help: helpPause, run: onDaemonSet("pause", pause)},
		"resume":     {help: helpResume, run: onDaemonSet("resume", resume)},
		"nodes":      {help: helpNodes, takes: []string{"output"}, run: showNodes},
		"release":    {help: helpRelease, run: release},
		"completion": {help: helpCompletion, run: printScript},
	}
}

// showNodes prints for how long pods stay on nodes that are away: on one node, or on all.
func showNodes(ctx context.Context, words []string, o *options, s streams) (progress.ExitCode, error) {
	if len(words) > 1 {
		return progress.ExitFailed, fmt.Errorf("%q: want one node, or none for all; see kubectl edgehub nodes --help", words)
	}
	c, err := o.open()
	if err != nil {
		return progress.ExitFailed, err
	}
	r, err := nodes.Look(ctx, c.client, strings.Join(words, ""))
	if err != nil {
		return progress.ExitFailed, err
	}
	if r.Autonomous() {
		if warning := (&leaseCheck{c: c}).warning(ctx, r.CarriedOut()); warning != "" {
			r.Warnings = append(r.Warnings, warning)
		}
	}
	if o.output == "" {
		_, err = io.WriteString(s.out, r.Text())
		return progress.ExitDone, err
	}
	encoder := json.NewEncoder(s.out)
	encoder.SetIndent("", "  ")
	return progress.ExitDone, encoder.Encode(r)
}

// release has the pods of a node that is away evicted now.
func release(ctx context.Context, words []string, o *options, s streams) (progress.ExitCode, error) {
	if len(words) != 1 {
		return progress.ExitFailed, errors.New("want one node; see kubectl edgehub release --help")
	}
	c, err := o.open()
	if err != nil {
		return progress.ExitFailed, err
	}
	text, err := nodes.Release(ctx, c.client, words[0], c.clock.now(), name)
	if err != nil {
		return progress.ExitFailed, err
	}
	if warning := (&leaseCheck{c: c}).warning(ctx, false); warning != "" {
		text += "warning: " + warning + "\n"
	}
	_, err = io.WriteString(s.out, text)
	return progress.ExitDone, err
}

// onDaemonSet connects to the cluster of the DaemonSet that words name.
func onDaemonSet(
	verb string, run func(ctx context.Context, c *cluster, daemonSet string, o *options, s streams) (progress.ExitCode, error),
) func(ctx context.Context, words []string, o *options, s streams) (progress.ExitCode, error) {
	return func(ctx context.Context, words []string, o *options, s streams) (progress.ExitCode, error) {
		w, err := parseName(words)
		if err == nil && w.kind != workload.DaemonSet {
			err = fmt.Errorf("%q is no DaemonSet: with StatefulSets, the owners of the nodes decide, and there is nothing to pause or resume",
				strings.Join(words, " "))
		}
		if err != nil {
			return progress.ExitFailed, seeHelp(err, verb)
		}
		cluster, err := o.open()
		if err != nil {
			return progress.ExitFailed, err
		}
		return run(ctx, cluster, w.name, o, s)
	}
}

func seeHelp(err error, verb string) error {
	return fmt.Errorf("%w; see kubectl edgehub %s --help", err, verb)
}

// run carries out the command line. Errors go to s.err. program is the name of the executable.
func run(ctx context.Context, program string, args []string, s streams) progress.ExitCode {
	// client-go's log lines would destroy the picture; what matters is returned as errors.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	s = streams{out: cli.Safe(s.out), err: cli.Safe(s.err)}
	switch {
	case program == kubectlCompleter:
		cli.PrintForKubectl(s.out, completeLine(ctx, args))
		return progress.ExitDone
	case len(args) > 0 && args[0] == cli.Verb:
		cli.Print(s.out, completeLine(ctx, args[1:]))
		return progress.ExitDone
	}
	code, err := dispatch(ctx, args, s)
	if err != nil {
		fmt.Fprintln(s.err, "error:", err)
	}
	return code
}

func dispatch(ctx context.Context, args []string, s streams) (progress.ExitCode, error) {
	var o options
	fs := o.flags()
	if err := fs.Parse(args); err != nil {
		return progress.ExitFailed, fmt.Errorf("%w; see kubectl edgehub --help", err)
	}
	words := fs.Args()
	if o.version {
		fmt.Fprintln(s.out, cli.VersionLine(name))
		return progress.ExitDone, nil
	}
	if o.help || len(words) == 0 || words[0] == "help" {
		return help(words, s.out)
	}
	verb := words[0]
	c, known := commands()[verb]
	if !known {
		return progress.ExitFailed, fmt.Errorf("unknown command %q: want %s; see kubectl edgehub --help", verb, verbs)
	}
	if err := o.check(fs, verb, c); err != nil {
		return progress.ExitFailed, err
	}
	return c.run(ctx, words[1:], &o, s)
}

// check refuses flags that the command would ignore.
func (o *options) check(fs *pflag.FlagSet, verb string, c command) error {
	for _, flag := range statusFlags() {
		if fs.Changed(flag) && !slices.Contains(c.takes, flag) {
			return fmt.Errorf("--%s is no flag of %s; see kubectl edgehub %s --help", flag, verb, verb)
		}
	}
	switch {
	case o.output != "" && o.output != "json":
		return fmt.Errorf("--output=%q: want json, or leave it out", o.output)
	case o.output != "" && o.nodes:
		return errors.New("--nodes and --output: JSON has the nodes in any case, leave --nodes out")
	case o.timeout < 0:
		return fmt.Errorf("--timeout=%v: want a duration such as 10m", o.timeout)
	case o.timeout > 0 && !o.watch:
		return errors.New("--timeout limits how long --watch waits: add --watch, or leave it out")
	case o.ready && !o.watch:
		return errors.New("--ready-only is about what --watch waits for: add --watch, or leave it out")
	}
	return nil
}

// help prints the help of the command that words name, or of the program.
func help(words []string, w io.Writer) (progress.ExitCode, error) {
	words = slices.DeleteFunc(words, func(s string) bool { return s == "help" })
	if len(words) == 0 {
		fmt.Fprintln(w, strings.TrimSpace(helpAll))
		return progress.ExitDone, nil
	}
	c, known := commands()[words[0]]
	if !known {
		return progress.ExitFailed, fmt.Errorf("unknown command %q: want %s", words[0], verbs)
	}
	fmt.Fprintln(w, strings.TrimSpace(c.help))
	return progress.ExitDone, nil
}
