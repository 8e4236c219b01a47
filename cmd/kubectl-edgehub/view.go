package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/edgehub-io/edgehub/cmd/internal/format"
	"github.com/edgehub-io/edgehub/cmd/internal/screen"
)

// view shows reports, one after the other, to a person or to a program.
type view func(*report)

// viewFor returns the view for the flags and w: JSON, a picture that is updated in place on a
// terminal, or lines for a log.
func viewFor(o *options, w io.Writer) view {
	size, isTerminal := screen.Terminal(w)
	switch {
	case o.output == "json":
		return jsonView(w, o.watch)
	case o.watch && isTerminal:
		s := screen.New(w, size)
		return func(r *report) { s.Draw(o.picture(r, screen.Width(w))) }
	case o.watch:
		return logView(w, o.nodes)
	default:
		return func(r *report) { fmt.Fprint(w, o.picture(r, screen.Width(w))) }
	}
}

// picture is the text and, if asked for, the table below it.
func (o *options) picture(r *report, width int) string {
	if !o.nodes {
		return r.text(width)
	}
	return r.text(width) + "\n" + r.table()
}

// jsonView prints one report over many lines, or each change on one line.
func jsonView(w io.Writer, lines bool) view {
	last := ""
	return func(r *report) {
		b, err := json.Marshal(r)
		if !lines {
			b, err = json.MarshalIndent(r, "", "  ")
		}
		if err != nil {
			panic("encode report: " + err.Error()) // strings, numbers, and maps and lists of them
		}
		if s := string(b); s != last {
			fmt.Fprintln(w, s)
			last = s
		}
	}
}

// logView prints a line for each change, and with nodes one for each node that has changed.
func logView(w io.Writer, nodes bool) view {
	last := ""
	rows := map[string]string{}
	return func(r *report) {
		if nodes {
			for _, n := range r.Nodes {
				if row := strings.Join(n.row(), " "); row != rows[n.Node] {
					fmt.Fprintln(w, row)
					rows[n.Node] = row
				}
			}
		}
		s := string(r.State) + ": " + r.Message
		if r.State.exitCode() != exitUnderWay && !strings.Contains(s, r.Advice) {
			s += "; " + r.Advice
		}
		for _, warning := range r.Warnings {
			s += "; warning: " + warning
		}
		if s != last {
			fmt.Fprintln(w, s)
			last = s
		}
	}
}

// table has a row for each node.
func (r *report) table() string {
	var rows [][]string
	for _, n := range r.Nodes {
		rows = append(rows, n.row())
	}
	return format.Table([]string{"NODE", "STATE", "POD", "READY", "STATUS", "RESTARTS", "REVISION", "REASON"}, rows)
}

func (n nodeReport) row() []string {
	ready, restarts := "", ""
	if n.PodStatus != "" {
		ready, restarts = fmt.Sprintf("%d/%d", n.ReadyContainers, n.Containers), fmt.Sprint(n.Restarts)
	}
	return format.Filled([]string{n.Node, string(n.State), n.Pod, ready, n.PodStatus, restarts, n.Revision, n.Reason})
}
