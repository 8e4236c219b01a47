package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// waiting is what --wait waits for.
type waiting struct {
	*view.Replacement
	began time.Time
	// action is what the hub has to be done with before the pod is looked at; "": nothing.
	action api.Action
	// inPlace is that the upgrade is one in place, and back that it is being undone.
	inPlace, back bool
}

// waitFor polls the hub. That is cheap: the hub has all of it in memory, and few people wait at once.
func (c *call) waitFor(ctx context.Context, w *waiting) error {
	report := c.progressReporter()
	where := "for the hub"
	what := "upgrade"
	if w.action == api.RollbackAction {
		what = "rollback"
	}
	for {
		done, next, err := c.look(ctx, w)
		switch {
		case ctx.Err() != nil:
			goesOn := "The " + what + " goes on; " + name + " pods shows the pod"
			if advice := w.Advice(); advice != "" {
				goesOn += ". " + advice
			}
			return c.unfinished(ctx, "waiting "+where, goesOn)
		case err != nil && !hubclient.IsPassing(err):
			return err
		case err != nil:
			report(err.Error()+"; the "+what+" goes on all the same", time.Since(w.began))
		case done:
			return c.arrived(w)
		default:
			where = next
			report("waiting "+where, time.Since(w.began))
		}
		cli.Pause(ctx, c.pace)
	}
}

// look returns true when there is nothing left to wait for, and otherwise what it is.
func (c *call) look(ctx context.Context, w *waiting) (done bool, next string, err error) {
	if w.action != "" {
		if next, err = c.lookAtHub(ctx, w); err != nil || next != "" {
			return false, next, err
		}
		w.action = ""
	}
	asked := time.Now()
	pods, err := c.hub.Pods(ctx)
	if err != nil {
		return false, "", err
	}
	if w.inPlace && !w.back {
		return w.Passed(pods, time.Now())
	}
	return w.Check(pods, asked, time.Now())
}

// lookAtHub returns "" when the hub is done with its part, and otherwise what it waits for.
func (c *call) lookAtHub(ctx context.Context, w *waiting) (next string, err error) {
	list, err := c.hub.Upgrades(ctx)
	if err != nil {
		return "", err
	}
	var last *api.Upgrade // that waits or is in progress, and otherwise the last that has ended
	for i := range list.Items {
		if u := &list.Items[i]; u.UID == string(w.UID) && u.Action == w.action && (u.InPlace != nil) == w.inPlace && (last == nil || last.State.Final()) {
			last = u
		}
	}
	what := strings.ToLower(string(w.action))
	switch {
	case last == nil:
		return "", fmt.Errorf("the hub has forgotten the %s of pod %s: %s queue shows what it knows", what, w.Old, name)
	case w.back && last.InPlace.State != api.Undoing:
		return "", nil
	case w.back: // kubelet has yet to start the earlier version
	case last.State == api.Done:
		w.Target = last.Revision
		return "", nil
	case last.State.Final():
		return "", fmt.Errorf("the %s of pod %s to revision %s was %s: %s", what, w.Old, last.Revision, view.StateText(last), cmp.Or(last.Message, "the hub gives no reason"))
	}
	return fmt.Sprintf("for pod %s: %s", w.Old, cli.Joined(view.StateText(last), last.Message)), nil
}

// progressReporter returns a function that shows what the command waits for: on a terminal in place,
// with the time so far; elsewhere on stderr, when it has changed.
func (c *call) progressReporter() func(text string, took time.Duration) {
	size, isTerminal := cli.Terminal(c.out)
	if !isTerminal || c.output != "" {
		n := &cli.Notes{W: c.err}
		return func(text string, _ time.Duration) { n.Note(text) }
	}
	s := cli.NewScreen(c.out, size)
	return func(text string, took time.Duration) {
		s.Draw(fmt.Sprintf("%s (%s)\n", text, cli.Seconds(took)))
	}
}

// errNothingToWaitFor is for --timeout without what it limits.
var errNothingToWaitFor = cli.WrongUse("--timeout limits how long --wait waits: add --wait, or leave it out")

// errTimeout is the cause when --timeout has passed.
var errTimeout = cli.Errorf(cli.Undone, "--timeout has passed")

// limited is ctx with --timeout, if there is one.
func (c *call) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, c.timeout, errTimeout)
}

// unfinished returns the error when ctx ends before the work is done. where describes the
// present state, goesOn what happens next.
func (c *call) unfinished(ctx context.Context, where, goesOn string) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return cli.Errorf(cli.Undone, "not done after %v: %s. %s", c.timeout, where, goesOn)
	}
	return cli.Errorf(cli.Undone, "interrupted: %s. %s", where, goesOn)
}
