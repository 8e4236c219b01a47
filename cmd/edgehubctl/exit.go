package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/podview"
)

// exitCode is what scripts branch on. The help explains the codes.
type exitCode int

const (
	exitDone   exitCode = 0 // what was asked for is done
	exitFailed exitCode = 1 // it is not done, and another attempt alone does not help
	exitUsage  exitCode = 2 // the words on the command line are wrong
	exitUndone exitCode = 3 // it goes on, but nobody waits any longer
	exitNotNow exitCode = 4 // it was refused for now; a later attempt may succeed
	exitBroken exitCode = 5 // the upgrade was carried out, and the new pod does not run
)

// ending is an error with its exit code.
type ending struct {
	code exitCode
	err  error
}

func (e *ending) Error() string { return e.err.Error() }
func (e *ending) Unwrap() error { return e.err }

func endf(code exitCode, format string, args ...any) error {
	return &ending{code, fmt.Errorf(format, args...)}
}

func wrongUse(format string, args ...any) error { return endf(exitUsage, format, args...) }

// errTimeout is the cause when --timeout has passed.
var errTimeout = errors.New("--timeout has passed")

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
		return endf(exitUndone, "not done after %v: %s. %s", c.timeout, where, goesOn)
	}
	return endf(exitUndone, "interrupted: %s. %s", where, goesOn)
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func codeOf(err error) exitCode {
	if err == nil {
		return exitDone
	}
	if e, ok := errors.AsType[*ending](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*hubclient.UsageError](err); ok {
		return exitUsage
	}
	if errors.Is(err, errTimeout) || errors.Is(err, context.Canceled) {
		return exitUndone
	}
	if _, ok := errors.AsType[*podview.Broken](err); ok {
		return exitBroken
	}
	if r, ok := errors.AsType[*hubclient.APIError](err); ok && (r.Code == http.StatusForbidden || r.Code == http.StatusConflict || r.Code == http.StatusServiceUnavailable) {
		return exitNotNow
	}
	return exitFailed
}

// askNew is Ask for what older hubs do not have.
func (c *call) askNew(ctx context.Context, method, path string) (string, error) {
	answer, err := c.hub.Ask(ctx, method, path)
	return answer, orTooOld(err)
}

// orTooOld returns err, or that the hub is too old if it failed because the hub has no such path or method.
func orTooOld(err error) error {
	r, ok := errors.AsType[*hubclient.APIError](err)
	if ok && (r.Code == http.StatusMethodNotAllowed || r.Code == http.StatusNotFound && strings.HasPrefix(r.Text, "no such path")) {
		return endf(exitFailed, "this hub cannot do that, it is older than %s: update edgehub on this node", name)
	}
	return err
}
