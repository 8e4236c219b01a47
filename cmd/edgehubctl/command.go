package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/container"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/helptext"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

const name = "edgehubctl"

// streams are where output goes.
type streams struct{ out, err io.Writer }

// options are the values of the flags. All commands share one set of flags, which may
// stand before and behind the command.
type options struct {
	address   string
	tls       hubclient.TLSFiles
	namespace string
	output    string
	timeout   time.Duration
	noWait    bool
	cancel    bool
	wait      bool
	noPull    bool
	when      when
	all       bool
	force     bool
	length    time.Duration
	reason    string
	remove    bool
	to        string
	file      string
	help      bool
	version   bool
	container container.Options
}

// commonFlags are for all commands; the flags of one command are in its row of commands.
func commonFlags() []string {
	return []string{"address", "certificate-authority", "client-certificate", "client-key", "output", "help"}
}

func (o *options) flags() *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.Usage = func() {} // errors name the command that prints help
	fs.StringVar(&o.address, "address", cmp.Or(os.Getenv("EDGEHUB_ADDRESS"), "127.0.0.1:10267"), "HOST:PORT where the hub listens; the environment variable EDGEHUB_ADDRESS sets another default")
	fs.StringVar(&o.tls.CA, "certificate-authority", "", "file with the certificate of a hub that offers its API over TLS (--serve-client-ca-file), or with its CA")
	fs.StringVar(&o.tls.Cert, "client-certificate", "", "file with your client certificate for that hub")
	fs.StringVar(&o.tls.Key, "client-key", "", "file with the private key for --client-certificate")
	fs.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the pod, if not given as NAMESPACE/POD; empty: default. With pods, queue, events and upgrade --all: this namespace only; empty: all")
	fs.StringVarP(&o.output, "output", "o", "", "json prints JSON, for programs; wide, of pods, queue, history, status and events, tables with a line for each row, however long, and more columns; empty: text that fits the terminal, or 80 columns")
	fs.DurationVar(&o.timeout, "timeout", 0, "how long to wait at most; 0: without limit")
	fs.BoolVar(&o.noWait, "no-wait", false, "request the pull, or wait until the container to restart has stopped, and no longer")
	fs.BoolVar(&o.cancel, "cancel", false, "cancel the pull, and release the images that are on the node")
	fs.BoolVar(&o.wait, "wait", false, "wait until the new pod, or the pod after its rollback, is Ready and stays Ready")
	fs.BoolVar(&o.noPull, "no-pull", false, "do not pull the images before the upgrade")
	fs.StringVar(&o.when.at, "at", "", "begin at this time: 2026-11-22T03:00:00+01:00, or 03:00 for the next 03:00 here")
	fs.StringVar(&o.when.window, "window", "", "begin within this part of a day, in the next one in which it can: 02:00-05:00")
	fs.StringVar(&o.when.timeZone, "tz", "", "IANA name of the time zone of --window, such as Europe/Berlin; empty: the hub's")
	fs.BoolVar(&o.all, "all", false, "every pod of this node that needs an upgrade, one after the other")
	fs.BoolVar(&o.force, "force", false, "in spite of a hold; with restart: although it is not known whether kubelet would start the container again")
	fs.DurationVar(&o.length, "for", 0, "how long to hold the pod, such as 2h")
	fs.StringVar(&o.reason, "reason", "", "with --for: why, for people; at most 200 bytes")
	fs.BoolVar(&o.remove, "remove", false, "end the hold")
	fs.StringVar(&o.to, "to", "", "revision to go back to, as history shows it; empty: the previous one")
	fs.StringVar(&o.file, "output-file", "", "file to write, which must not exist; -: stdout; empty: edgehub-NODE-TIME.tar.gz in this folder")
	o.container.Add(fs)
	fs.BoolVarP(&o.help, "help", "h", false, "print help, also for a command")
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	return fs
}

// command is one verb.
type command struct {
	name  string   // also that of its help
	flags []string // of those that are not for all commands
	// args are the arguments that the command requires.
	args []string
	wide bool // whether it prints a table, and takes --output=wide
	run  func(ctx context.Context, c *call) error
}

func commands() []command {
	return slices.Concat([]command{
		{name: "pods", wide: true, flags: []string{"namespace"}, run: pods},
		{name: "pull", args: []string{"POD"}, flags: []string{"namespace", "no-wait", "timeout", "cancel"}, run: pull},
		{name: "upgrade", args: []string{"POD"}, flags: []string{"namespace", "wait", "timeout", "no-pull", "at", "window", "tz", "all", "force"}, run: upgradePods},
		{name: "queue", wide: true, flags: []string{"namespace"}, run: queue},
		{name: "cancel", args: []string{"POD"}, flags: []string{"namespace"}, run: cancel},
		{name: "hold", args: []string{"POD"}, flags: []string{"namespace", "for", "reason", "remove"}, run: hold},
		{name: "rollback", args: []string{"POD"}, flags: []string{"namespace", "to", "force", "wait", "timeout"}, run: rollback},
		{name: "history", wide: true, args: []string{"POD"}, flags: []string{"namespace"}, run: history},
		{name: "status", wide: true, run: status},
		{name: "events", wide: true, flags: []string{"namespace"}, run: events},
		{name: "web", run: web},
		{name: "bundle", flags: []string{"output-file"}, run: writeBundle},
		{name: "completion", args: []string{"SHELL"}, run: printScript},
	}, containerCommands())
}

// outputs are the values of --output, besides none.
func (c command) outputs() []string {
	if c.wide {
		return []string{"json", wide}
	}
	return []string{"json"}
}

func commandNames() []string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

func find(verb string) (command, error) {
	for _, c := range commands() {
		if c.name == verb {
			return c, nil
		}
	}
	return command{}, wrongUse("unknown command %q: want %s; see %s --help", verb, strings.Join(commandNames(), ", "), name)
}

// call is one command as it was given.
type call struct {
	options
	streams
	args []string
	hub  *hubclient.Client
	timing
}

// timing is shorter in tests.
type timing struct {
	// pace is the time between two polls or attempts.
	pace time.Duration
	// settle is how long a new pod has to stay Ready, unless its DaemonSet says so.
	settle time.Duration
}

// usualTiming is that of the program. Ten seconds are enough for a program that fails at
// its start to be restarted by kubelet, and so to be seen failing.
func usualTiming() timing { return timing{pace: time.Second, settle: 10 * time.Second} }

// run carries out the command line. Errors go to s.err.
func run(ctx context.Context, args []string, s streams, t timing) exitCode {
	s = streams{out: cli.Safe(s.out), err: cli.Safe(s.err)}
	if len(args) > 0 && args[0] == cli.Verb {
		cli.Print(s.out, completeLine(ctx, args[1:]))
		return exitDone
	}
	err := dispatch(ctx, args, s, t)
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintln(s.err, "error:", err)
	}
	return codeOf(err)
}

func dispatch(ctx context.Context, args []string, s streams, t timing) error {
	c := &call{streams: s, timing: t}
	fs := c.flags()
	if err := fs.Parse(args); err != nil {
		return wrongUse("%w; see %s --help", err, name)
	}
	words := fs.Args()
	if c.version {
		fmt.Fprintln(s.out, cli.VersionLine(name))
		return nil
	}
	if c.help || len(words) == 0 || words[0] == "help" {
		return help(words, s.out)
	}
	verb, err := find(words[0])
	if err != nil {
		return err
	}
	c.args = words[1:]
	if err := c.check(fs, verb); err != nil {
		return wrongUse("%w; see %s %s --help", err, name, verb.name)
	}
	if c.hub, err = hubclient.New(c.address, c.tls); err != nil {
		return err
	}
	return verb.run(ctx, c)
}

// check refuses arguments and flags that the command would ignore.
func (c *call) check(fs *pflag.FlagSet, verb command) error {
	var stray error
	fs.Visit(func(f *pflag.Flag) {
		if !slices.Contains(commonFlags(), f.Name) && !slices.Contains(verb.flags, f.Name) {
			stray = fmt.Errorf("--%s is no flag of %s", f.Name, verb.name)
		}
	})
	switch {
	case stray != nil:
		return stray
	case c.output != "" && ofContainer(verb.name):
		return fmt.Errorf("--output is no flag of %s", verb.name)
	case !slices.Contains(append(verb.outputs(), ""), c.output):
		return fmt.Errorf("--output=%q: want %s, or leave it out", c.output, strings.Join(verb.outputs(), " or "))
	case c.file == "-" && c.output != "":
		return errors.New("--output-file=- writes the bundle to stdout: leave --output out")
	case c.timeout < 0:
		return fmt.Errorf("--timeout=%v: want a duration such as 10m", c.timeout)
	case c.cancel && (c.noWait || c.timeout > 0):
		return fmt.Errorf("--cancel ends a pull, and nothing is left to wait for: leave the other flags out")
	case c.noWait && c.timeout > 0:
		return fmt.Errorf("--timeout limits how long the %s is waited for: leave it out, or --no-wait", verb.name)
	case c.timeout > 0 && !c.wait && (verb.name == "rollback" || verb.name == "upgrade" && (c.noPull || c.when.later())):
		return fmt.Errorf("--timeout limits how long --wait waits: add --wait, or leave it out")
	case ofContainer(verb.name):
		if err := c.checkContainer(verb.name, fs.ArgsLenAtDash()); err != nil || verb.name == "exec" {
			return err
		}
	case verb.name == "hold":
		if err := c.checkHold(fs.Changed("for")); err != nil {
			return err
		}
	case c.all && len(c.args) == 0:
		return c.when.check(time.Now())
	case c.all:
		return fmt.Errorf("--all upgrades every pod that needs it: leave the pod out, or --all")
	}
	if len(c.args) != len(verb.args) {
		return fmt.Errorf("want %s behind %s, got %s", cmp.Or(strings.Join(verb.args, " "), "nothing"), verb.name, cli.Plural(len(c.args), "word"))
	}
	return c.when.check(time.Now())
}

// checkHold is check for the flags of hold.
func (c *call) checkHold(hasLength bool) error {
	switch {
	case c.remove && (hasLength || c.reason != ""):
		return errors.New("--remove ends a hold: leave the other flags out")
	case hasLength && c.length <= 0:
		return fmt.Errorf("--for=%v: want a duration such as 2h", c.length)
	case c.reason != "" && !hasLength:
		return errors.New("--reason is that of a hold: add --for, such as --for 2h")
	}
	return nil
}

// width returns how wide text may be: as the terminal, or 80 columns, which is the least that people have;
// 0 is without limit.
func (c *call) width() int {
	if c.output == wide {
		return 0
	}
	return cmp.Or(cli.Width(c.out), 80)
}

// help prints the help of the command that words name, or of the program.
func help(words []string, w io.Writer) error {
	words = slices.DeleteFunc(words, func(s string) bool { return s == "help" })
	of := name
	if len(words) > 0 {
		verb, err := find(words[0])
		if err != nil {
			return err
		}
		of = verb.name
	}
	fmt.Fprintln(w, helptext.Of(of))
	return nil
}

// printJSON prints v over many lines.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
