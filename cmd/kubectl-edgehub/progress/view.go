package progress

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// View shows reports, one after the other, to a person or to a program.
type View func(*Report)

// ViewOptions are what a View shows. The zero value is one text for people.
type ViewOptions struct {
	JSON  bool
	Watch bool // reports follow each other
	Nodes bool // a row for each node, too
}

// NewView returns a View that writes to w: JSON, a picture that is updated in place on a
// terminal, or lines for a log.
func NewView(w io.Writer, o ViewOptions) View {
	size, isTerminal := cli.Terminal(w)
	switch {
	case o.JSON:
		return jsonView(w, o.Watch)
	case o.Watch && isTerminal:
		s := cli.NewScreen(w, size)
		return func(r *Report) { s.Draw(o.picture(r, cli.Width(w))) }
	case o.Watch:
		return logView(w, o.Nodes)
	default:
		return func(r *Report) { fmt.Fprint(w, o.picture(r, cli.Width(w))) }
	}
}

// picture is the text and, if asked for, the table below it.
func (o ViewOptions) picture(r *Report, width int) string {
	if !o.Nodes {
		return r.text(width)
	}
	return r.text(width) + "\n" + r.table()
}

// jsonView prints one report over many lines, or each change on one line.
func jsonView(w io.Writer, lines bool) View {
	changes := cli.Notes{W: w}
	return func(r *Report) {
		b, err := json.Marshal(r)
		if !lines {
			b, err = json.MarshalIndent(r, "", "  ")
		}
		if err != nil {
			panic("encode report: " + err.Error()) // strings, numbers, and maps and lists of them
		}
		changes.Note(string(b))
	}
}

// logView prints a line for each change, and with nodes one for each node that has changed.
func logView(w io.Writer, nodes bool) View {
	changes, rows := cli.Notes{W: w}, map[string]*cli.Notes{}
	return func(r *Report) {
		if nodes {
			for _, n := range r.Nodes {
				if rows[n.name(r)] == nil {
					rows[n.name(r)] = &cli.Notes{W: w}
				}
				rows[n.name(r)].Note(strings.Join(n.row(), " "))
			}
		}
		s := string(r.State) + ": " + r.Message
		if r.State.ExitCode() != ExitUnderWay && !strings.Contains(s, r.Advice) {
			s += "; " + r.Advice
		}
		for _, warning := range r.Warnings {
			s += "; warning: " + warning
		}
		changes.Note(cli.OneLine(s))
	}
}

// table has a row for each node.
func (r *Report) table() string {
	var rows [][]string
	for _, n := range r.Nodes {
		rows = append(rows, n.row())
	}
	return cli.Table([]string{"NODE", "STATE", "POD", "READY", "STATUS", "RESTARTS", "REVISION", "REASON"}, rows, 0)
}

func (n Node) row() []string {
	ready, restarts := "", ""
	if n.PodStatus != "" {
		ready, restarts = fmt.Sprintf("%d/%d", n.ReadyContainers, n.Containers), fmt.Sprint(n.Restarts)
	}
	return cli.Filled([]string{n.Node, string(n.State), n.Pod, ready, n.PodStatus, restarts, n.Revision, n.reasons()})
}
