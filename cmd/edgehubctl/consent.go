package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/podview"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// hold sets, removes or shows the hold of a pod.
func hold(ctx context.Context, c *call) error {
	pod, err := c.pod()
	if err != nil {
		return err
	}
	path := api.HoldPath(pod.Namespace, pod.Name)
	switch {
	case c.remove:
		return c.sayOf(c.askNew(ctx, http.MethodDelete, path))
	case c.length > 0:
		q := url.Values{api.ForParam: {c.length.String()}}
		if c.reason != "" {
			q.Set(api.ReasonParam, c.reason)
		}
		return c.sayOf(c.askNew(ctx, http.MethodPost, withQuery(path, q)))
	}
	var h api.Hold
	if err := orTooOld(c.hub.Read(ctx, path, &h)); err != nil {
		return err
	}
	if c.output == "json" {
		return printJSON(c.out, h)
	}
	fmt.Fprint(c.out, cli.Table([]string{"POD", "HELD UNTIL", "CLOUD KNOWS", "REASON"},
		[][]string{{pod.String(), h.Until.Local().Format(time.RFC3339), yesNo(h.Reported), h.Reason}}, c.width()))
	return nil
}

// cancel cancels an upgrade or rollback that waits.
func cancel(ctx context.Context, c *call) error {
	pod, err := c.pod()
	if err != nil {
		return err
	}
	return c.sayOf(c.askNew(ctx, http.MethodDelete, api.UpgradePath(pod.Namespace, pod.Name)))
}

// rollback has a pod return to an earlier revision. With --wait it returns when that runs, and has stayed
// Ready for a while.
func rollback(ctx context.Context, c *call) error {
	pod, err := c.pod()
	if err != nil {
		return err
	}
	q := c.query(time.Now())
	if c.to != "" {
		q.Set(api.RevisionParam, c.to)
	}
	path := withQuery(api.RollbackPath(pod.Namespace, pod.Name), q)
	if !c.wait {
		return c.sayOf(c.askNew(ctx, http.MethodPost, path))
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	before, err := c.hub.Pods(ctx) // only the pod as it was shows which containers have to restart
	if err != nil {
		return err
	}
	w := waiting{began: time.Now(), action: api.RollbackAction}
	answer, err := c.askNew(ctx, http.MethodPost, path)
	if err != nil {
		return err
	}
	if c.output == "" {
		fmt.Fprintln(c.out, answer)
	}
	if w.Replacement, err = podview.NewRollback(before, pod, c.settle); err != nil {
		return err
	}
	return c.waitFor(ctx, &w)
}
