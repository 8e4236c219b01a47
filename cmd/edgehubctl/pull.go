package main

import (
	"context"
	"fmt"
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
