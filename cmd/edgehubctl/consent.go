package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// hold sets, removes or shows the hold of a pod.
func hold(ctx context.Context, c *call) error {
	hasLength := c.flags.Changed("for")
	path := api.HoldPath(c.pod.Namespace, c.pod.Name)
	switch {
	case c.remove && (hasLength || c.reason != ""):
		return cli.WrongUse("--remove ends a hold: leave the other flags out")
	case hasLength && c.length <= 0:
		return cli.WrongUse("--for=%v: want a duration such as 2h", c.length)
	case c.reason != "" && !hasLength:
		return cli.WrongUse("--reason is that of a hold: add --for, such as --for 2h")
	case c.remove:
		return c.say(c.hub.Ask(ctx, http.MethodDelete, path))
	case hasLength:
		q := url.Values{api.ForParam: {c.length.String()}}
		if c.reason != "" {
			q.Set(api.ReasonParam, c.reason)
		}
		return c.say(c.hub.Ask(ctx, http.MethodPost, withQuery(path, q)))
	}
	var h api.Hold
	if err := c.hub.Read(ctx, path, &h); err != nil {
		return err
	}
	return c.print(h, cli.Table([]string{"POD", "HELD UNTIL", "CLOUD KNOWS", "REASON"},
		[][]string{{c.pod.String(), h.Until.Local().Format(time.RFC3339), yesNo(h.Reported), h.Reason}}, c.width()))
}

// cancel cancels an upgrade or rollback that waits.
func cancel(ctx context.Context, c *call) error {
	return c.say(c.hub.Ask(ctx, http.MethodDelete, api.UpgradePath(c.pod.Namespace, c.pod.Name)))
}

// rollback has a pod return to an earlier revision. With --wait it returns when that runs, and has stayed
// Ready for a while.
func rollback(ctx context.Context, c *call) error {
	if c.timeout > 0 && !c.wait {
		return errNothingToWaitFor
	}
	q := c.query(time.Now())
	if c.to != "" {
		q.Set(api.RevisionParam, c.to)
	}
	path := withQuery(api.RollbackPath(c.pod.Namespace, c.pod.Name), q)
	if !c.wait {
		return c.say(c.hub.Ask(ctx, http.MethodPost, path))
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	before, err := c.hub.Pods(ctx) // only the pod as it was shows which containers have to restart
	if err != nil {
		return err
	}
	w := waiting{began: time.Now(), action: api.RollbackAction}
	answer, waits, err := c.hub.Send(ctx, http.MethodPost, path)
	if err != nil {
		return err
	}
	if !waits { // the node goes back by itself
		w.action, w.inPlace, w.back = api.UpgradeAction, true, true
	}
	if c.output == "" {
		fmt.Fprintln(c.out, answer)
	}
	if w.Replacement, err = view.NewRollback(before, c.pod, c.settle); err != nil {
		return err
	}
	return c.waitFor(ctx, &w)
}
