package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/table"
	"github.com/edgehub-io/edgehub/cmd/internal/words"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// podReport is a pod in the output of pods. As JSON it is an interface to scripts:
// fields are added, and never change their meaning.
type podReport struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// Revision is what the pod runs.
	Revision string `json:"revision,omitempty"`
	// NeedsUpgrade is null while nobody has said.
	NeedsUpgrade *bool `json:"needsUpgrade"`
	// TargetRevision and Since are there for a pod that needs an upgrade.
	TargetRevision string     `json:"targetRevision,omitempty"`
	Since          *time.Time `json:"since,omitempty"`
	// ImageReady is null where nobody asked for the images of that revision.
	ImageReady *bool `json:"imageReady"`
	// ImageReason is a word for why the images are not ready. ImageBytes of them are on
	// the node, which are ImagePercent of all; that is left out until the registry has
	// told of every image how large it is.
	ImageReason  string `json:"imageReason,omitempty"`
	ImageBytes   int64  `json:"imageBytes,omitempty"`
	ImagePercent *int   `json:"imagePercent,omitempty"`
}

func pods(ctx context.Context, c *call) error {
	all, err := c.hub.nodePods(ctx)
	if err != nil {
		return err
	}
	pulls, err := c.hub.imagePulls(ctx)
	if err != nil {
		return err
	}
	reports := []podReport{}
	for _, pod := range all {
		if c.namespace == "" || c.namespace == pod.Namespace {
			reports = append(reports, reportOf(pod, pulls))
		}
	}
	switch {
	case c.output == "json":
		return printJSON(c.out, reports)
	case len(reports) == 0:
		fmt.Fprintln(c.out, "No pods on this node.")
	default:
		fmt.Fprint(c.out, podTable(reports, time.Now()))
	}
	return nil
}

func reportOf(pod *corev1.Pod, pulls []nodeapi.ImagePull) podReport {
	r := podReport{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Revision: revisionOf(pod)}
	need, revision := needOf(pod)
	if need == nil {
		return r
	}
	needs := need.Status == corev1.ConditionTrue
	r.NeedsUpgrade = &needs
	if !needs {
		return r
	}
	r.TargetRevision = revision
	if since := need.LastTransitionTime.Time; !since.IsZero() {
		r.Since = &since
	}
	for i := range pulls {
		if pulls[i].UID == string(pod.UID) && pulls[i].Revision == revision {
			r.pulled(&pulls[i])
			return r
		}
	}
	r.said(upgrade.Condition(pod, upgrade.ImageCondition))
	return r
}

// pulled takes over what the hub itself knows: it is newer than what the pod says,
// which waits for the cloud.
func (r *podReport) pulled(p *nodeapi.ImagePull) {
	ready := p.State == nodeapi.Ready
	r.ImageReady = &ready
	if ready {
		return
	}
	r.ImageReason = string(p.State)
	var total int64
	known := true
	for _, i := range p.Images {
		if i.Reason != "" {
			r.ImageReason = i.Reason
		}
		known = known && i.BytesTotal > 0
		r.ImageBytes += i.BytesDone
		total += i.BytesTotal
	}
	if known {
		n := percent(r.ImageBytes, total)
		r.ImagePercent = &n
	}
}

// said takes over what the pod says, which may be nil, or about an older revision.
func (r *podReport) said(image *corev1.PodCondition) {
	if image == nil {
		return
	}
	revision := upgrade.RevisionOf(image)
	ready := image.Status == corev1.ConditionTrue && revision == r.TargetRevision
	r.ImageReady = &ready
	switch {
	case ready:
	case revision != r.TargetRevision:
		r.ImageReason = "OtherRevision"
	default:
		r.ImageReason = image.Reason
	}
}

func podTable(reports []podReport, now time.Time) string {
	var rows [][]string
	for _, r := range reports {
		rows = append(rows, r.row(now))
	}
	return table.Text([]string{"NAMESPACE", "POD", "NEEDS UPGRADE", "IMAGE READY", "SINCE"}, rows)
}

func (r *podReport) row(now time.Time) []string {
	row := []string{r.Namespace, r.Pod, "", "", ""}
	if r.NeedsUpgrade != nil {
		row[2] = "no"
		if *r.NeedsUpgrade {
			row[2] = words.Joined("yes", "to "+r.TargetRevision)
		}
	}
	if r.ImageReady != nil {
		row[3] = "yes"
		if !*r.ImageReady {
			row[3] = words.Joined("no", r.ImageReason, r.howFar())
		}
	}
	if r.Since != nil {
		row[4] = age(*r.Since, now)
	}
	return row
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
