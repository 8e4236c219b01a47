package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/podview"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// queue lists the upgrades and rollbacks that wait, are in progress, or have ended of late.
func queue(ctx context.Context, c *call) error {
	list, err := c.hub.Upgrades(ctx)
	if err != nil {
		return orTooOld(err)
	}
	shown := api.UpgradeList{Items: []api.Upgrade{}}
	var rows [][]string
	for _, u := range list.Items {
		if c.namespace == "" || c.namespace == u.Namespace {
			shown.Items = append(shown.Items, u)
			rows = append(rows, []string{u.Namespace + "/" + u.Pod, string(u.Action), u.Revision, podview.StateText(&u), u.Message})
		}
	}
	switch {
	case c.output == "json":
		return printJSON(c.out, shown)
	case len(rows) == 0:
		fmt.Fprintln(c.out, "No upgrade or rollback waits, is in progress, or has ended of late.")
		return nil
	}
	fmt.Fprint(c.out, cli.Table([]string{"POD", "ACTION", "REVISION", "STATE", "MESSAGE"}, rows, c.width()))
	return nil
}

// history lists the revisions that a pod's app has run on this node.
func history(ctx context.Context, c *call) error {
	pod, err := c.pod()
	if err != nil {
		return err
	}
	h := api.History{Items: []api.Revision{}}
	if err := orTooOld(c.hub.Read(ctx, api.HistoryPath(pod.Namespace, pod.Name), &h)); err != nil {
		return err
	}
	switch {
	case c.output == "json":
		return printJSON(c.out, h)
	case len(h.Items) == 0:
		fmt.Fprintf(c.out, "This node has noted no revision of pod %s yet.\n", pod)
		return nil
	}
	var rows [][]string
	for _, r := range h.Items {
		rows = append(rows, []string{r.Revision, cli.Age(r.Since, time.Now()), yesNo(r.Current), yesNo(r.Retained), strings.Join(r.Images, ", ")})
	}
	fmt.Fprint(c.out, cli.Table([]string{"REVISION", "SINCE", "CURRENT", "ON NODE", "IMAGES"}, rows, c.width()))
	for _, r := range h.Items {
		if r.Blocked != "" {
			fmt.Fprint(c.out, "\n"+cli.Hanging("", fmt.Sprintf("%s cannot go back to %s: %s.", pod, r.Revision, r.Blocked), 0, c.width()))
		}
	}
	return nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
