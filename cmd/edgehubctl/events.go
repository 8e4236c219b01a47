package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// events lists the last Events that passed the hub.
func events(ctx context.Context, c *call) error {
	list := api.EventList{Items: []api.Event{}}
	if err := orTooOld(c.hub.Read(ctx, api.Events, &list)); err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(e api.Event) bool { return c.namespace != "" && c.namespace != e.Namespace })
	switch {
	case c.output == "json":
		return printJSON(c.out, list)
	case len(list.Items) == 0 && c.namespace != "":
		fmt.Fprintf(c.out, "No Events of namespace %s since the hub was started.\n", c.namespace)
	case len(list.Items) == 0:
		fmt.Fprintln(c.out, "No Events since the hub was started.")
	default:
		fmt.Fprint(c.out, c.eventTable(list.Items, time.Now()))
	}
	return nil
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
