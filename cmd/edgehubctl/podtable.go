package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/edgehub-io/edgehub/cmd/internal/format"
)

// podTable has all columns if they fit into width or width is 0, and otherwise the most
// important ones.
func podTable(reports []podReport, now time.Time, width int) string {
	rowsOf := func(row func(*podReport) []string) (rows [][]string) {
		for i := range reports {
			rows = append(rows, row(&reports[i]))
		}
		return rows
	}
	header := []string{"NAMESPACE", "POD", "READY", "STATUS", "RESTARTS", "NEEDS UPGRADE", "IMAGE READY", "SINCE", "IMAGE -> AFTER UPGRADE"}
	text := format.Table(header, rowsOf(func(r *podReport) []string { return r.row(now) }))
	if width == 0 || columns(text) <= width {
		return text
	}
	header = []string{"POD", "READY", "STATUS", "RESTARTS", "UPGRADE"}
	var rows [][]string
	for _, upgrade := range []func(*podReport) string{(*podReport).changesAndPull, (*podReport).changes, (*podReport).newImage} {
		rows = rowsOf(func(r *podReport) []string { return r.shortRow(upgrade) })
		if text := format.Table(header, rows); columns(text) <= width {
			return text
		}
	}
	return cutLast(header, rows, width)
}

// columns is how wide text is.
func columns(text string) int {
	most := 0
	for line := range strings.Lines(text) {
		most = max(most, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return most
}

// leastLast is the least width of the last column, even if lines wrap then.
const leastLast = 9

// cutLast is a table whose last column takes what the others leave of width.
func cutLast(header []string, rows [][]string, width int) string {
	last := len(header) - 1
	others := func(row []string) []string { return append(slices.Clone(row[:last]), "") }
	var without [][]string
	for _, row := range rows {
		without = append(without, others(row))
	}
	room := max(leastLast, width-columns(format.Table(others(header), without))+len("-")) // which an empty cell has
	for _, row := range rows {
		if text := []rune(row[last]); len(text) > room {
			row[last] = string(text[:room-len("...")]) + "..."
		}
	}
	return format.Table(header, rows)
}

// row has all columns.
func (r *podReport) row(now time.Time) []string {
	needs, since := "", ""
	if r.NeedsUpgrade != nil {
		needs = "no"
		if *r.NeedsUpgrade {
			needs = format.Joined(r.need(), "to "+r.TargetRevision)
		}
	}
	if r.Since != nil {
		since = age(*r.Since, now)
	}
	return append([]string{r.Namespace, r.Pod}, append(r.statusColumns(), needs, r.imageReady(), since, r.imageChanges(maxChanges))...)
}

// shortRow names the pod as the command upgrade takes it; the last column describes the
// upgrade.
func (r *podReport) shortRow(upgrade func(*podReport) string) []string {
	last := ""
	if r.NeedsUpgrade != nil {
		last = "no"
		switch {
		case *r.NeedsUpgrade && r.Blocked != "":
			last = r.need()
		case *r.NeedsUpgrade:
			last = upgrade(r)
		}
	}
	return append([]string{podName{r.Namespace, r.Pod}.String()}, append(r.statusColumns(), last)...)
}

// need is for a pod that needs an upgrade.
func (r *podReport) need() string {
	if r.Blocked != "" {
		return "blocked"
	}
	return "yes"
}

func (r *podReport) changes() string { return r.imageChanges(1) }

func (r *podReport) changesAndPull() string { return format.Joined(r.changes(), r.pulledOrNot()) }

// newImage is the first image that changes.
func (r *podReport) newImage() string {
	for i := range r.Images {
		if c := &r.Images[i]; c.AfterUpgrade != nil && *c.AfterUpgrade != "" && *c.AfterUpgrade != c.Now {
			return "to " + shortImage(*c.AfterUpgrade)
		}
	}
	return "yes"
}

// statusColumns are READY, STATUS and RESTARTS, as in kubectl get pods.
func (r *podReport) statusColumns() []string {
	return []string{fmt.Sprintf("%d/%d", r.ReadyContainers, r.Containers), r.Status, fmt.Sprint(r.Restarts)}
}

func (r *podReport) imageReady() string {
	switch {
	case r.ImageReady == nil:
		return ""
	case *r.ImageReady:
		return "yes"
	}
	return format.Joined("no", r.ImageReason, r.howFar())
}

func (r *podReport) pulledOrNot() string {
	switch {
	case r.ImageReady == nil:
		return ""
	case *r.ImageReady:
		return "pulled"
	}
	return format.Joined(r.ImageReason, r.howFar())
}

func (r *podReport) howFar() string {
	switch {
	case r.ImagePercent != nil:
		return fmt.Sprintf("%d%%", *r.ImagePercent)
	case r.ImageBytes > 0:
		return size(r.ImageBytes)
	}
	return ""
}
