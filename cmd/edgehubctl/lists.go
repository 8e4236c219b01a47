package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// queue lists the upgrades and rollbacks that wait, are in progress, or have ended of late.
func queue(ctx context.Context, c *call) error {
	list, err := c.hub.Upgrades(ctx)
	if err != nil {
		return err
	}
	shown := api.UpgradeList{Items: []api.Upgrade{}}
	var rows [][]string
	for _, u := range list.Items {
		if c.namespace == "" || c.namespace == u.Namespace {
			shown.Items = append(shown.Items, u)
			rows = append(rows, []string{u.Namespace + "/" + u.Pod, string(u.Action), u.Revision, view.StateText(&u), view.MessageText(&u)})
		}
	}
	text := "No upgrade or rollback waits, is in progress, or has ended of late.\n"
	if len(rows) > 0 {
		text = cli.Table([]string{"POD", "ACTION", "REVISION", "STATE", "MESSAGE"}, rows, c.width())
	}
	return c.print(shown, text)
}

// history lists the revisions that a pod's app has run on this node.
func history(ctx context.Context, c *call) error {
	h := api.History{Items: []api.Revision{}}
	if err := c.hub.Read(ctx, api.HistoryPath(c.pod.Namespace, c.pod.Name), &h); err != nil {
		return err
	}
	if len(h.Items) == 0 {
		return c.print(h, fmt.Sprintf("This node has noted no revision of pod %s yet.\n", c.pod))
	}
	var rows [][]string
	notes := ""
	if h.Upgrade != nil && h.Upgrade.InPlace != nil {
		notes = "\n" + cli.Hanging("", view.InPlaceText(h.Upgrade), 0, c.width())
	}
	for _, r := range h.Items {
		rows = append(rows, []string{r.Revision, cli.Age(r.Since, time.Now()), yesNo(r.Current), yesNo(r.Retained), strings.Join(r.Images, ", ")})
		if r.Blocked != "" {
			notes += "\n" + cli.Hanging("", fmt.Sprintf("%s cannot go back to %s: %s.", c.pod, r.Revision, r.Blocked), 0, c.width())
		}
	}
	return c.print(h, cli.Table([]string{"REVISION", "SINCE", "CURRENT", "ON NODE", "IMAGES"}, rows, c.width())+notes)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// events lists the last Events that passed the hub.
func events(ctx context.Context, c *call) error {
	list := api.EventList{Items: []api.Event{}}
	if err := c.hub.Read(ctx, api.Events, &list); err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(e api.Event) bool { return c.namespace != "" && c.namespace != e.Namespace })
	text := "No Events since the hub was started.\n"
	switch {
	case len(list.Items) > 0:
		text = c.eventTable(list.Items, time.Now())
	case c.namespace != "":
		text = fmt.Sprintf("No Events of namespace %s since the hub was started.\n", c.namespace)
	}
	return c.print(list, text)
}

func (c *call) eventTable(shown []api.Event, now time.Time) string {
	header := []string{"OBJECT", "AGE", "TYPE", "REASON", "MESSAGE"}
	if c.output == wide {
		header = []string{"OBJECT", "AGE", "TYPE", "REASON", "COUNT", "FIRST", "SOURCE", "MESSAGE"}
	}
	var rows [][]string
	for _, e := range shown {
		object := e.Kind + " " + e.Name
		if e.Namespace != "" {
			object = e.Kind + " " + e.Namespace + "/" + e.Name
		}
		row := []string{object, cli.Age(e.Last, now), e.Type, e.Reason}
		if c.output == wide {
			row = append(row, fmt.Sprint(max(e.Count, 1)), cli.Age(cmp.Or(e.First, e.Last), now), e.Source)
		}
		rows = append(rows, append(row, e.Message))
	}
	return cli.Table(header, rows, c.width())
}
