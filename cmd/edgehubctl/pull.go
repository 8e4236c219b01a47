package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// pull requests the images of a pod's upgrade, and shows the progress.
func pull(ctx context.Context, c *call) error {
	path := api.ImagePullPath(c.pod.Namespace, c.pod.Name)
	if c.cancel {
		if c.noWait || c.timeout > 0 {
			return cli.WrongUse("--cancel ends a pull, and nothing is left to wait for: leave the other flags out")
		}
		return c.say(c.hub.Ask(ctx, http.MethodDelete, path))
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.hub.Ask(ctx, http.MethodPost, path)
	switch {
	case err != nil:
		return err
	case c.noWait && c.output == "json":
		var state api.ImagePull
		if err := c.hub.Read(ctx, path, &state); err != nil {
			return err
		}
		return cli.PrintJSON(c.out, state)
	case c.output == "":
		fmt.Fprintln(c.out, answer)
	}
	if c.noWait {
		return nil
	}
	began := time.Now()
	if err := c.followPull(ctx, c.pod); err != nil || c.output != "" {
		return err
	}
	fmt.Fprintf(c.out, "All images are on the node, after %s.\nTo upgrade: %s upgrade %s\n", cli.Brief(time.Since(began)), name, c.pod)
	return nil
}

// followPull returns when all images are on the node, or never will be. A restart of the hub
// ends its stream but not the pull, so followPull opens the stream again.
func (c *call) followPull(ctx context.Context, pod types.NamespacedName) error {
	f := &follower{hub: c.hub, path: api.ImagePullPath(pod.Namespace, pod.Name), pace: c.pace, view: view.NewPullView(c.out, c.err, c.output == "json")}
	for {
		over, err := f.stream(ctx)
		if over {
			return f.outcome(pod)
		}
		if ctx.Err() != nil {
			return c.unfinished(ctx, f.summary(), "The hub goes on with it; to end that: "+name+" pull --cancel "+pod.String())
		}
		if err != nil && !hubclient.IsPassing(err) {
			return err
		}
		f.view.Note(brokenOff(err) + "; the pull goes on when it does")
		cli.Pause(ctx, c.pace)
	}
}

func brokenOff(err error) string {
	if err == nil {
		return "the hub has ended its answer"
	}
	return err.Error()
}

// follower reads the states of one pre-pull, over as many streams as it takes.
type follower struct {
	hub  *hubclient.Client
	path string
	pace time.Duration
	view view.PullView
	// first is the first state that was seen, and last the last.
	first, last *api.ImagePull
}

// stream shows the states that the hub sends. over is true when the last one is final, and
// false when the stream has ended before.
func (f *follower) stream(ctx context.Context) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	response, err := f.hub.Do(ctx, http.MethodGet, f.path+"?watch=true")
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	f.view.Note("")
	states, failed := decode(ctx, response.Body)
	tick := time.NewTicker(f.pace)
	defer tick.Stop()
	for {
		select {
		case s, ok := <-states:
			if !ok {
				return false, <-failed
			}
			f.last = s
			if f.first == nil {
				f.first = s
			}
			f.view.Show(s, time.Now())
			if f.isOver() {
				return true, nil
			}
		case <-tick.C: // rates and times to wait change without news
			if f.last != nil {
				f.view.Show(f.last, time.Now())
			}
		}
	}
}

// maxState bounds a state of a pre-pull, in bytes; its images are those of a pod.
const maxState = 1 << 20

// decode sends the states that it reads from r, then sends on failed why it ended, and closes
// states. nil is an end between two states. decode ends when ctx is done, if that ends r.
func decode(ctx context.Context, r io.Reader) (states <-chan *api.ImagePull, failed <-chan error) {
	out := make(chan *api.ImagePull)
	why := make(chan error, 1) // one error, whether or not anyone waits
	go func() {
		defer close(out)
		limited := &io.LimitedReader{R: r}
		decoder := json.NewDecoder(limited)
		for {
			s := new(api.ImagePull)
			limited.N = maxState
			if err := decoder.Decode(s); err != nil {
				why <- streamError(err)
				return
			}
			select {
			case out <- s:
			case <-ctx.Done():
				why <- nil
				return
			}
		}
	}()
	return out, why
}

// streamError returns nil for a stream that broke off, which is resumed, and an error for one
// that cannot be decoded.
func streamError(err error) error {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, mismatch := errors.AsType[*json.UnmarshalTypeError](err)
	if syntax || mismatch {
		return fmt.Errorf("the hub's answer is not understood, it may be of another version: %w", err)
	}
	return nil
}

// isOver reports whether the last state is final.
func (f *follower) isOver() bool {
	switch f.last.State {
	case api.Ready, api.Cancelled, api.Superseded:
		return true
	}
	return f.hopeless() || f.replaced()
}

// hopeless reports whether every missing image has failed for good.
func (f *follower) hopeless() bool {
	return f.last.State == api.Failed && !slices.ContainsFunc(f.last.Images, func(i api.Image) bool {
		return i.State != api.Ready && (i.State != api.Failed || i.NextRetry != nil)
	})
}

// replaced reports whether another pre-pull has replaced the requested one between two streams.
func (f *follower) replaced() bool {
	return f.last.Revision != f.first.Revision || f.last.UID != f.first.UID
}

// outcome returns the error of a pull that is over, nil if all images are on the node.
func (f *follower) outcome(pod types.NamespacedName) error {
	switch {
	case f.replaced():
		return cli.Errorf(cli.NotNow, "pod %s is to be upgraded to revision %s by now, not to %s: pull again", pod, f.last.Revision, f.first.Revision)
	case f.last.State == api.Superseded:
		return cli.Errorf(cli.NotNow, "pod %s is no longer to be upgraded to revision %s: %s pods shows what it needs", pod, f.last.Revision, name)
	case f.last.State == api.Cancelled:
		return fmt.Errorf("somebody has cancelled the pull for pod %s", pod)
	case f.last.State == api.Ready:
		return nil
	}
	return fmt.Errorf("the images for pod %s cannot be pulled: %s", pod, f.summary())
}

// summary describes in one line which image is missing, and why.
func (f *follower) summary() string {
	if f.last == nil {
		return "the hub has not said how far it is"
	}
	now := time.Now()
	for _, i := range f.last.Images {
		if i.LastError != "" {
			return i.Image + ": " + view.Describe(&i, now)
		}
	}
	ready := 0
	for _, i := range f.last.Images {
		if i.State == api.Ready {
			ready++
		}
	}
	return fmt.Sprintf("%d of %s on the node", ready, cli.Plural(len(f.last.Images), "image"))
}
