package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// PodTable has all columns if they fit into width or width is 0, and otherwise the most
// important ones.
func PodTable(reports []Pod, now time.Time, width int) string {
	rowsOf := func(row func(*Pod) []string) (rows [][]string) {
		for i := range reports {
			rows = append(rows, row(&reports[i]))
		}
		return rows
	}
	text := cli.Table(allColumns(), rowsOf(func(r *Pod) []string { return r.Row(now) }), 0)
	if width == 0 || cli.Columns(text) <= width {
		return text
	}
	header := []string{"POD", "READY", "STATUS", "RESTARTS", "UPGRADE"}
	var rows [][]string
	for _, upgrade := range []func(*Pod) string{(*Pod).changesAndPull, (*Pod).changes, (*Pod).newImage} {
		rows = rowsOf(func(r *Pod) []string { return r.shortRow(upgrade) })
		if text := cli.Table(header, rows, 0); cli.Columns(text) <= width {
			return text
		}
	}
	return cli.Table(header, rows, width)
}

func allColumns() []string {
	return []string{"NAMESPACE", "POD", "READY", "STATUS", "RESTARTS", "NEEDS UPGRADE", "IMAGE READY", "SINCE", "IMAGE -> AFTER UPGRADE"}
}

// WidePodTable has all columns of PodTable, and more of what a pod runs.
func WidePodTable(reports []Pod, now time.Time) string {
	header := append(allColumns(), "STARTED", "POD IP", "NODE IP", "REVISION", "IMAGES")
	var rows [][]string
	for i := range reports {
		r := &reports[i]
		started := ""
		if r.Started != nil {
			started = cli.Age(*r.Started, now)
		}
		rows = append(rows, append(r.Row(now), started, r.PodIP, r.NodeIP, r.Revision, strings.Join(r.runs(), ", ")))
	}
	return cli.Table(header, rows, 0)
}

// runs returns the images that the pod runs, each once.
func (r *Pod) runs() []string {
	var images []string
	for _, i := range r.Images {
		if i.Now != "" && !slices.Contains(images, i.Now) {
			images = append(images, i.Now)
		}
	}
	return images
}

// Row has all columns of PodTable.
func (r *Pod) Row(now time.Time) []string {
	needs, since := "", ""
	if r.NeedsUpgrade != nil {
		needs = "no"
		if *r.NeedsUpgrade {
			needs = cli.Joined(r.need(), "to "+r.TargetRevision)
		}
		needs = cli.Joined(needs, r.UpgradeState)
	}
	if r.Since != nil {
		since = cli.Age(*r.Since, now)
	}
	return append([]string{r.Namespace, r.Pod}, append(r.statusColumns(), needs, r.imageReady(), since, r.ImageChanges(MaxChanges))...)
}

// shortRow names the pod as the command upgrade takes it; the last column describes the
// upgrade.
func (r *Pod) shortRow(upgrade func(*Pod) string) []string {
	last := ""
	if r.NeedsUpgrade != nil {
		last = "no"
		switch {
		case *r.NeedsUpgrade && r.Blocked != "":
			last = r.need()
		case *r.NeedsUpgrade:
			last = upgrade(r)
		}
		last = cli.Joined(r.UpgradeState, last)
	}
	return append([]string{r.Namespace + "/" + r.Pod}, append(r.statusColumns(), last)...)
}

// need is for a pod that needs an upgrade.
func (r *Pod) need() string {
	if r.Blocked != "" {
		return "blocked"
	}
	return "yes"
}

func (r *Pod) changes() string { return r.ImageChanges(1) }

func (r *Pod) changesAndPull() string { return cli.Joined(r.changes(), r.pulledOrNot()) }

// newImage is the first image that changes.
func (r *Pod) newImage() string {
	for i := range r.Images {
		if c := &r.Images[i]; c.AfterUpgrade != nil && *c.AfterUpgrade != "" && *c.AfterUpgrade != c.Now {
			return "to " + shortImage(*c.AfterUpgrade)
		}
	}
	return "yes"
}

// statusColumns are READY, STATUS and RESTARTS, as in kubectl get pods.
func (r *Pod) statusColumns() []string {
	return []string{fmt.Sprintf("%d/%d", r.ReadyContainers, r.Containers), r.Status, fmt.Sprint(r.Restarts)}
}

func (r *Pod) imageReady() string {
	switch {
	case r.ImageReady == nil:
		return ""
	case *r.ImageReady:
		return "yes"
	}
	return cli.Joined("no", r.ImageReason, r.howFar())
}

func (r *Pod) pulledOrNot() string {
	switch {
	case r.ImageReady == nil:
		return ""
	case *r.ImageReady:
		return "pulled"
	}
	return cli.Joined(r.ImageReason, r.howFar())
}

func (r *Pod) howFar() string {
	switch {
	case r.ImagePercent != nil:
		return fmt.Sprintf("%d%%", *r.ImagePercent)
	case r.ImageBytes > 0:
		return cli.Size(r.ImageBytes)
	}
	return ""
}
