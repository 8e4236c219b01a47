package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/nodes"
	"github.com/edgehub-io/edgehub/controller/workload"
)

const name = "kubectl-edgehub"

// call is one command as it was given: the values of the flags, and where output goes.
type call struct {
	connection
	watch   bool
	nodes   bool
	all     bool // namespaces
	output  string
	timeout time.Duration
	ready   bool // not to wait for nodes that are not
	signing bundleFlags

	out, err io.Writer
}

func (c *call) addFlags(fs *pflag.FlagSet) {
	fs.BoolVarP(&c.watch, "watch", "w", false, "wait until nothing is left to do")
	fs.BoolVar(&c.nodes, "nodes", false, "print a row for each node")
	fs.BoolVarP(&c.all, "all-namespaces", "A", false, "a line for each DaemonSet and StatefulSet that opted in, of all namespaces")
	fs.StringVarP(&c.output, "output", "o", "", "json prints JSON, for programs; empty: text. With bundle: the file to write; -: stdout")
	fs.DurationVar(&c.timeout, "timeout", 0, "how long --watch waits at most; 0: without limit")
	fs.BoolVar(&c.ready, "ready-only", false, "do not wait with --watch for nodes that are not Ready")
	c.signing.addFlags(fs)
	c.connection.addFlags(fs)
}

func (c *call) program() *cli.Program {
	p := cli.NewProgram(name, "kubectl edgehub", help, cli.Failed, c.addFlags)
	p.Values = c.flagValues
	json := []string{"json"}
	p.Commands = []cli.Command{
		{Name: "status", Outputs: json, Flags: []string{"watch", "nodes", "all-namespaces", "timeout", "ready-only"}, Args: c.workloadNames(isManaged), Run: c.status},
		{Name: "pause", Args: c.workloadNames(isPausable), Run: c.onDaemonSet(pause)},
		{Name: "resume", Args: c.workloadNames(isPausable), Run: c.onDaemonSet(resume)},
		{Name: "nodes", Outputs: json, Args: c.nodeNames(false), Run: c.showNodes},
		{Name: "bundle", WritesFile: true, Flags: []string{"key", "valid-for", "images", "platform"}, Args: c.workloadNames(permitsInPlace), Run: c.bundle},
		{Name: "release", Args: c.nodeNames(true), Run: c.release},
		p.Completion(c.out),
	}
	return p
}

// showNodes prints for how long pods stay on nodes that are away: on one node, or on all.
func (c *call) showNodes(ctx context.Context, words []string) error {
	if len(words) > 1 {
		return cli.WrongUse("%q: want one node, or none for all", words)
	}
	to, err := c.open()
	if err != nil {
		return err
	}
	r, err := nodes.Look(ctx, to.client, strings.Join(words, ""))
	if err != nil {
		return err
	}
	if r.Autonomous() {
		if warning := (&leaseCheck{c: to}).warning(ctx, r.CarriedOut()); warning != "" {
			r.Warnings = append(r.Warnings, warning)
		}
	}
	if c.output != "" {
		return cli.PrintJSON(c.out, r)
	}
	_, err = io.WriteString(c.out, r.Text())
	return err
}

// release has the pods of a node that is away evicted now.
func (c *call) release(ctx context.Context, words []string) error {
	if len(words) != 1 {
		return cli.WrongUse("want one node")
	}
	to, err := c.open()
	if err != nil {
		return err
	}
	text, err := nodes.Release(ctx, to.client, words[0], to.clock.now(), name)
	if err != nil {
		return err
	}
	if warning := (&leaseCheck{c: to}).warning(ctx, false); warning != "" {
		text += "warning: " + warning + "\n"
	}
	_, err = io.WriteString(c.out, text)
	return err
}

// onDaemonSet connects to the cluster of the DaemonSet that words name.
func (c *call) onDaemonSet(run func(ctx context.Context, c *cluster, daemonSet string, out io.Writer) error) func(context.Context, []string) error {
	return func(ctx context.Context, words []string) error {
		w, err := parseName(words)
		if err != nil {
			return err
		}
		if w.kind != workload.DaemonSet {
			return cli.WrongUse("%q is no DaemonSet: with StatefulSets, the owners of the nodes decide, and there is nothing to pause or resume", strings.Join(words, " "))
		}
		to, err := c.open()
		if err != nil {
			return err
		}
		return run(ctx, to, w.name, c.out)
	}
}

// check refuses flags of status that do not go together.
func (c *call) check() error {
	switch {
	case c.output != "" && c.nodes:
		return errors.New("--nodes and --output: JSON has the nodes in any case, leave --nodes out")
	case c.timeout < 0:
		return fmt.Errorf("--timeout=%v: want a duration such as 10m", c.timeout)
	case c.timeout > 0 && !c.watch:
		return errors.New("--timeout limits how long --watch waits: add --watch, or leave it out")
	case c.ready && !c.watch:
		return errors.New("--ready-only is about what --watch waits for: add --watch, or leave it out")
	}
	return nil
}
