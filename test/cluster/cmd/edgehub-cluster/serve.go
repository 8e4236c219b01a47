package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/cluster/link"
)

const (
	// serveCommand is how up starts this program in the background.
	serveCommand = "serve"
	// reportsFD is the pipe to up: its lines for people, and at the end
	// readyMark if the cluster serves.
	reportsFD = 3
	readyMark = 0
)

// serve runs a cluster until it is signalled to end. When up is gone before the
// cluster serves, nobody waits for it, and it is taken down again.
func serve(ctx context.Context, args []string) error {
	o, err := parseUp(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	reports := os.NewFile(reportsFD, "reports")
	if reports == nil {
		return fmt.Errorf("%s is not for people; use up", serveCommand)
	}
	defer reports.Close()
	// up reads until the last copy of the pipe is closed: the cluster's own
	// processes must not have one.
	syscall.CloseOnExec(reportsFD)

	options := o.clusterOptions()
	options.Log = &reporter{reports: reports, log: os.Stderr, gone: func(err error) {
		cancel(fmt.Errorf("the program that waits for the cluster is gone: %w", err))
	}}
	fmt.Fprintf(os.Stderr, "%s: starting\n", time.Now().Format(time.RFC3339))
	c, err := cluster.Start(ctx, options)
	if err != nil {
		fmt.Fprintln(reports, err)
		return err
	}
	links := map[string]*link.Link{}
	for _, node := range c.Nodes() {
		links[node.Name()] = node.Link()
	}
	closeLinks, err := serveLinks(ctx, c.Dir(), links)
	if err != nil {
		fmt.Fprintln(reports, err)
		return errors.Join(err, c.Stop())
	}
	defer closeLinks()
	fmt.Fprint(reports, lookAround(c))
	_, _ = reports.Write([]byte{readyMark})
	_ = reports.Close()

	<-ctx.Done()
	fmt.Fprintf(os.Stderr, "%s: stopping\n", time.Now().Format(time.RFC3339))
	return c.Stop()
}

// reporter writes the steps to up, and to the log for later.
type reporter struct {
	reports io.Writer
	log     io.Writer
	gone    func(error) // called when up does not read any more
}

func (r *reporter) Write(p []byte) (int, error) {
	_, _ = r.log.Write(p)
	if _, err := r.reports.Write(p); err != nil {
		r.gone(err)
	}
	return len(p), nil
}
