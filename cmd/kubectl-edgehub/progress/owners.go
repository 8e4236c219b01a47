package progress

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Owner is what the owner of a node, or an app on it, has decided about the node's pod, as far as
// the cloud knows: a node that is away reports it when it is back. Its texts are at most
// api.MaxHoldReason bytes; the node may have written anything into them.
type Owner struct {
	// HeldUntil is when a hold ends; nil if the pod is not held. HoldReason is the owner's.
	HeldUntil  *metav1.Time `json:"heldUntil,omitempty"`
	HoldReason string       `json:"holdReason,omitempty"`
	// Waiting is an upgrade, or a rollback, that waits on the node for its time.
	Waiting *api.Waiting `json:"waiting,omitempty"`
	// RolledBack is set if the pod is of an earlier revision because its owner wants it.
	RolledBack bool `json:"rolledBack,omitempty"`
	// RollbackRefused is why an owner's rollback is not carried out.
	RollbackRefused string `json:"rollbackRefused,omitempty"`
	// UpgradedOffline is set if the pod was upgraded while the cloud was away, and the cloud has yet to follow.
	UpgradedOffline *OfflineUpgrade `json:"upgradedOffline,omitempty"`
}

// OfflineUpgrade is what a pod runs that the cloud does not have, as its node reports it.
type OfflineUpgrade struct {
	// Since, Revision and Images are nil and empty while the node does not know yet whether the new version works, and if it
	// does not report them.
	Since    *metav1.Time      `json:"since,omitempty"`
	Revision string            `json:"revision,omitempty"`
	Images   []api.TargetImage `json:"images,omitempty"`
	// Problem is why the cloud cannot follow; "" while it may.
	Problem string `json:"problem,omitempty"`
}

// ownerOf reads a pod's annotations and conditions, which its node may write. maxHold bounds its hold.
func ownerOf(pod *corev1.Pod, maxHold time.Duration, now time.Time) Owner {
	text := func(s string) string { return daemonset.Truncate(s, api.MaxHoldReason) }
	var o Owner
	if until, reason := rollout.HeldUntil(pod, maxHold, now); !until.IsZero() {
		o.HeldUntil, o.HoldReason = &metav1.Time{Time: until}, text(reason)
	}
	if w, ok, err := api.WaitingOf(pod); ok && err == nil {
		w.Revision, w.Window, w.TimeZone = text(w.Revision), text(w.Window), text(w.TimeZone)
		o.Waiting = &w
	}
	if c := api.Condition(pod, api.RolledBackCondition); c != nil {
		if o.RolledBack = c.Status == corev1.ConditionTrue; c.Status == corev1.ConditionFalse { // Unknown until the controller answers
			o.RollbackRefused = text(c.Message)
		}
	}
	o.UpgradedOffline = offlineUpgradeOf(pod)
	return o
}

// offlineUpgradeOf returns nil if the cloud has what the pod runs, as far as its node says.
func offlineUpgradeOf(pod *corev1.Pod) *OfflineUpgrade {
	text := func(s string) string { return daemonset.Truncate(s, api.MaxHoldReason) }
	c, reconciled := api.Condition(pod, api.UpgradedOfflineCondition), api.Condition(pod, api.ReconciledCondition)
	u, reported, err := api.OfflineUpgradeOf(pod)
	onProbation := c != nil && c.Status == corev1.ConditionUnknown
	cannotFollow := reconciled != nil && reconciled.Status == corev1.ConditionFalse // also without a report, api.ReasonNoReport
	if !reported && !onProbation && !cannotFollow {
		return nil
	}
	out := &OfflineUpgrade{}
	if reported && err == nil {
		out.Since, out.Revision = &u.Since, text(u.Revision)
		for _, i := range u.Images {
			out.Images = append(out.Images, api.TargetImage{Name: text(i.Name), Image: text(i.Image)})
		}
	}
	if cannotFollow {
		out.Problem = text(reconciled.Message)
	}
	return out
}

// words are for a line; none if all that is known is the problem.
func (u *OfflineUpgrade) words() string {
	switch {
	case u.Since == nil && u.Problem != "":
		return ""
	case u.Since == nil:
		return "on probation"
	}
	var images []string
	for _, i := range u.Images[:min(len(u.Images), maxReasons)] {
		images = append(images, plainImage(i.Image))
	}
	return "since " + u.Since.UTC().Format(time.RFC3339) + ": " + cli.First(images, maxReasons, len(u.Images))
}

// image is what images are called.
var image = regexp.MustCompile(`^[A-Za-z0-9:/@._-]{1,100}$`)

// plainImage is plain for an image.
func plainImage(text string) string {
	if image.MatchString(text) {
		return text
	}
	return fmt.Sprintf("%.*q", maxQuoted, text)
}

// decisions have a line each, and are counted in the list of all workloads.
var decisions = []struct {
	label  string
	long   string // in a sentence, if it differs from label, which fits its column
	is     func(*Owner) bool
	detail func(*Owner) string
}{
	{"on hold", "", func(o *Owner) bool { return o.HeldUntil != nil }, func(o *Owner) string {
		s := "until " + o.HeldUntil.UTC().Format(time.RFC3339)
		if o.HoldReason != "" {
			s += fmt.Sprintf(" (%.*q)", maxQuoted, o.HoldReason)
		}
		return s
	}},
	{"scheduled", "", func(o *Owner) bool { return o.Waiting != nil }, func(o *Owner) string {
		if w := o.Waiting; w.At != nil {
			return "at " + w.At.UTC().Format(time.RFC3339)
		} else if w.Window != "" {
			return strings.TrimSpace("within " + plain(w.Window) + " " + plain(w.TimeZone))
		}
		return ""
	}},
	{"rolled back", "", func(o *Owner) bool { return o.RolledBack }, func(*Owner) string { return "" }},
	{"offline", "upgraded offline", func(o *Owner) bool { return o.UpgradedOffline != nil }, func(o *Owner) string { return o.UpgradedOffline.words() }},
}

// maxQuoted is how many characters of a text are shown in a line; JSON has api.MaxHoldReason bytes.
const maxQuoted = 40

// harmless are windows, and names of time zones.
var harmless = regexp.MustCompile(`^[A-Za-z0-9:/+_-]{0,40}$`)

// plain returns text that a node wrote, quoted unless it is harmless.
func plain(text string) string {
	if harmless.MatchString(text) {
		return text
	}
	return fmt.Sprintf("%.*q", maxQuoted, text)
}

// ownerLines has a line for each decision that any owner has made, for a terminal of that width, or
// for none.
func (r *Report) ownerLines(width int) string {
	indent := ""
	if width > 0 {
		indent = "    " // as wide as a mark of the bar
	}
	var out strings.Builder
	for i := range decisions {
		if nodes := r.decided(i); len(nodes) > 0 {
			head := indent + countLine(decisions[i].label, len(nodes)) + "  "
			out.WriteString(head + fitting(nodes, cmp.Or(width, defaultWidth)-len(head)) + "\n")
		}
	}
	return out.String()
}

// decided returns the nodes whose owner has made a decision, with its detail.
func (r *Report) decided(decision int) (nodes []string) {
	d := decisions[decision]
	for i := range r.Nodes {
		if n := &r.Nodes[i]; d.is(&n.Owner) {
			nodes = append(nodes, strings.TrimSpace(n.name(r)+" "+d.detail(&n.Owner)))
		}
	}
	return nodes
}

// defaultWidth is that of most terminals.
const defaultWidth = 80

// fitting is cli.First with as many, up to maxNames, as fit into width, one at least.
func fitting(list []string, width int) string {
	n := maxNames
	for n > 1 && utf8.RuneCountInString(cli.First(list, n, len(list))) > width {
		n--
	}
	return cli.First(list, n, len(list))
}

// countOwners counts the decisions of owners in a few words, "" for none.
func (r *Report) countOwners() string {
	var out []string
	for i, d := range decisions {
		if count := len(r.decided(i)); count > 0 {
			out = append(out, fmt.Sprintf("%d %s", count, cmp.Or(d.long, d.label)))
		}
	}
	return strings.Join(out, ", ")
}

// reasons is Reason and what the owner has decided. Of HeldByOwner, Reason is the hold.
func (n *Node) reasons() string {
	out := []string{n.Reason}
	for i, d := range decisions {
		if d.is(&n.Owner) && (i > 0 || n.State != rollout.HeldByOwner) {
			out = append(out, strings.TrimSpace(cmp.Or(d.long, d.label)+" "+d.detail(&n.Owner)))
		}
	}
	if n.RollbackRefused != "" {
		out = append(out, fmt.Sprintf("its rollback is refused: %q", n.RollbackRefused))
	}
	if u := n.UpgradedOffline; u != nil && u.Problem != "" {
		out = append(out, fmt.Sprintf("the cloud cannot follow: %q", u.Problem))
	}
	return cli.Joined(out...)
}
