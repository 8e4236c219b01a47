package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// pull has the images of a pod's upgrade pulled, and shows how that goes on.
func pull(ctx context.Context, c *call) error {
	pod, err := c.pod()
	if err != nil {
		return err
	}
	path := nodeapi.ImagePullPath(pod.namespace, pod.name)
	if c.cancel {
		return c.sayOf(c.hub.ask(ctx, http.MethodDelete, path))
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.hub.ask(ctx, http.MethodPost, path)
	switch {
	case err != nil:
		return err
	case c.noWait && c.output == "json":
		var state nodeapi.ImagePull
		if err := c.hub.read(ctx, path, &state); err != nil {
			return err
		}
		return printJSON(c.out, state)
	case c.output == "":
		fmt.Fprintln(c.out, answer)
	}
	if c.noWait {
		return nil
	}
	return c.followPull(ctx, pod)
}

// sayOf prints an answer, as JSON if that is wanted.
func (c *call) sayOf(answer string, err error) error {
	switch {
	case err != nil:
		return err
	case c.output == "json":
		return printJSON(c.out, map[string]string{"message": answer})
	}
	fmt.Fprintln(c.out, answer)
	return nil
}

// followPull returns when all images are there, or never will be. The hub's stream
// breaks off when the hub is restarted, which does not end the pull.
func (c *call) followPull(ctx context.Context, pod podName) error {
	began := time.Now()
	f := &follower{hub: c.hub, path: nodeapi.ImagePullPath(pod.namespace, pod.name), pace: c.pace, view: c.pullView()}
	var end error
	for {
		over, err := f.stream(ctx)
		if over {
			end = f.outcome(pod)
			break
		}
		if ctx.Err() != nil {
			return c.unfinished(ctx, f.summary(), "The hub goes on with it; to end that: "+name+" pull --cancel "+pod.String())
		}
		if err != nil && !isPassing(err) {
			return err
		}
		f.view.note(brokenOff(err) + "; the pull goes on when it does")
		pause(ctx, c.pace)
	}
	if end == nil && c.output == "" {
		fmt.Fprintf(c.out, "All images are on the node, after %s. To upgrade: %s upgrade %s\n", brief(time.Since(began)), name, pod)
	}
	return end
}

func brokenOff(err error) string {
	if err == nil {
		return "the hub has ended its answer"
	}
	return err.Error()
}

// follower reads the states of one pre-pull, over as many streams as it takes.
type follower struct {
	hub  *hub
	path string
	pace time.Duration
	view pullView
	// first is the first state that was seen, and last the last.
	first, last *nodeapi.ImagePull
}

// stream shows what the hub sends until it has sent the last state there will be,
// which is to be over; or until the stream ends otherwise.
func (f *follower) stream(ctx context.Context) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	response, err := f.hub.do(ctx, http.MethodGet, f.path+"?watch=true")
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	f.view.note("")
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
			f.view.show(s, time.Now())
			if f.isOver() {
				return true, nil
			}
		case <-tick.C: // rates and times to wait change without news
			if f.last != nil {
				f.view.show(f.last, time.Now())
			}
		}
	}
}

// decode sends what it reads, and then closes states, and sends why on failed: nil
// is an end between two states. It ends when ctx does, if that ends r.
func decode(ctx context.Context, r io.Reader) (states <-chan *nodeapi.ImagePull, failed <-chan error) {
	out := make(chan *nodeapi.ImagePull)
	why := make(chan error, 1) // it is sent whether somebody waits or not
	go func() {
		defer close(out)
		decoder := json.NewDecoder(r)
		for {
			s := new(nodeapi.ImagePull)
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

// streamError tells a stream that broke off, which is nothing to worry about, from
// one that makes no sense.
func streamError(err error) error {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, mismatch := errors.AsType[*json.UnmarshalTypeError](err)
	if syntax || mismatch {
		return fmt.Errorf("the hub's answer is not understood, it may be of another version: %w", err)
	}
	return nil
}

// isOver tells whether nothing more is to be expected.
func (f *follower) isOver() bool {
	switch f.last.State {
	case nodeapi.Ready, nodeapi.Cancelled, nodeapi.Superseded:
		return true
	}
	return f.hopeless() || f.replaced()
}

// hopeless tells whether every image that is not there has failed for good.
func (f *follower) hopeless() bool {
	for _, i := range f.last.Images {
		if i.State != nodeapi.Ready && (i.State != nodeapi.Failed || i.NextRetry != nil) {
			return false
		}
	}
	return f.last.State == nodeapi.Failed
}

// replaced tells whether, while nobody was looking, another pre-pull has come in
// place of the one that was asked for.
func (f *follower) replaced() bool {
	return f.last.Revision != f.first.Revision || f.last.UID != f.first.UID
}

// outcome is how it ended.
func (f *follower) outcome(pod podName) error {
	switch {
	case f.replaced():
		return endf(exitNotNow, "pod %s is to be upgraded to revision %s by now, not to %s: pull again", pod, f.last.Revision, f.first.Revision)
	case f.last.State == nodeapi.Superseded:
		return endf(exitNotNow, "pod %s is no longer to be upgraded to revision %s: %s pods shows what it needs", pod, f.last.Revision, name)
	case f.last.State == nodeapi.Cancelled:
		return endf(exitFailed, "somebody has cancelled the pull for pod %s", pod)
	case f.last.State == nodeapi.Ready:
		return nil
	}
	return endf(exitFailed, "the images for pod %s cannot be pulled: %s", pod, f.summary())
}

// summary says in one line what is not there, and why.
func (f *follower) summary() string {
	if f.last == nil {
		return "the hub has not said how far it is"
	}
	now := time.Now()
	for _, i := range f.last.Images {
		if i.LastError != "" {
			return i.Image + ": " + describe(&i, now)
		}
	}
	ready := 0
	for _, i := range f.last.Images {
		if i.State == nodeapi.Ready {
			ready++
		}
	}
	return fmt.Sprintf("%d of %s on the node", ready, plural(len(f.last.Images), "image"))
}
