package rollout

import (
	"cmp"
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/api"
)

// prefix is that of all annotations that count.
const prefix = "apps.openyurt.io/"

// Report is where a rollout stands, for programs that show it: they repeat what the controller says, and apply none of
// its rules. As JSON it is an interface between releases: fields are added, and never change their meaning.
type Report struct {
	// Generation and Asked are of the workload that the report is about: Asked has a hash of each annotation that
	// counts, by its name without prefix, and "" for one that is absent. See ReportOn.
	Generation int64             `json:"generation"`
	Asked      map[string]string `json:"asked"`
	// Revision is the target; "" while it is not known.
	Revision string `json:"revision,omitempty"`
	// Reason and Message are those of api.ProgressingCondition, or with the strategy OTA of api.CompleteCondition, also of a
	// StatefulSet, which has no conditions.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Limits are set while nodes are Pending. Else they would change with each node that comes or goes.
	Limits *Limits `json:"limits,omitempty"`
	// Counts are how many nodes, or pods, are in each state. Groups are the largest ones of them.
	Counts map[State]int `json:"counts,omitempty"`
	Groups []Group       `json:"groups,omitempty"`
	// Missing are the first nodes that have lacked their pod for LackGrace.
	Missing []MissingPod `json:"missing,omitempty"`
}

// Limits are how many nodes of a Plan are Ready, how many of those have no available pod, and how many may.
type Limits struct {
	Ready       int `json:"ready"`
	Unavailable int `json:"unavailable"`
	Max         int `json:"max"`
}

// Group are the nodes, or pods of a StatefulSet, that are in a state for the same reason.
type Group struct {
	State        State  `json:"state"`
	Reason       string `json:"reason,omitempty"`
	AwaitsImages bool   `json:"awaitsImages,omitempty"`
	Count        int    `json:"count"`
	// Nodes are the first maxListed of their names, or of the pods; none of those that are Updated.
	Nodes []string `json:"nodes,omitempty"`
}

// MissingPod is a node without its pod: Kubernetes has not created it, or the scheduler does not place it.
type MissingPod struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// Bounds of a Report, so that it has some kilobytes at most, whatever the number of nodes.
const (
	maxReason  = 300 // bytes
	maxGroups  = 15
	maxListed  = 50
	maxMissing = 10
)

// Annotations are those of a DaemonSet or StatefulSet that decide about its pods.
func Annotations() []string {
	return []string{
		api.StrategyAnnotation, api.OldStrategyAnnotation,
		api.MaxUnavailableAnnotation, api.PartitionAnnotation, api.PausedAnnotation, api.NodeSelectorAnnotation, api.ContinueAnnotation,
		api.PrepullAnnotation, api.PrepullTimeoutAnnotation,
		api.MaxHoldAnnotation, api.OwnerRollbackAnnotation, api.RollbackHistoryAnnotation,
		api.OfflineUpgradeAnnotation,
	}
}

// NewReport returns the report of a plan for workload. missing are nodes that have lacked their pod for LackGrace; why
// they do is their reason.
func NewReport(workload metav1.Object, p *Plan, reason string, missing []MissingPod) *Report {
	r := NewAwaitReport(workload)
	r.Revision, r.Reason, r.Message, r.Counts = p.Revision, reason, p.Summary(), maps.Clone(p.Counts)
	maps.DeleteFunc(r.Counts, func(_ State, n int) bool { return n == 0 }) // as Revert leaves some
	slices.SortFunc(missing, func(a, b MissingPod) int { return cmp.Compare(a.Node, b.Node) })
	r.Missing = missing[:min(len(missing), maxMissing)]
	r.Groups = groupsOf(p.Nodes, missing)
	if p.Counts[Pending] > 0 {
		r.Limits = &Limits{Ready: p.Ready, Unavailable: p.Unavailable, Max: p.Max}
	}
	return r
}

// NewAwaitReport returns the report while the target revision is not known.
func NewAwaitReport(workload metav1.Object) *Report {
	c := AwaitRevision()[0]
	r := &Report{Generation: workload.GetGeneration(), Asked: map[string]string{}, Reason: c.Reason, Message: c.Message}
	for _, key := range Annotations() {
		r.Asked[strings.TrimPrefix(key, prefix)] = digest(workload.GetAnnotations(), key)
	}
	return r
}

func digest(annotations map[string]string, key string) string {
	value, ok := annotations[key]
	if !ok {
		return ""
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(value)) // it does not fail
	return strconv.FormatUint(h.Sum64(), 36)
}

// ReportOn returns the report on workload, nil if it has none that can be read. current is whether it is about what the
// workload asks for now; else the controller has yet to see a change.
func ReportOn(workload metav1.Object) (r *Report, current bool) {
	value := workload.GetAnnotations()[api.ReportAnnotation]
	if value == "" || json.Unmarshal([]byte(value), &r) != nil || r == nil {
		return nil, false
	}
	current = r.Generation == workload.GetGeneration()
	for name, asked := range r.Asked {
		current = current && digest(workload.GetAnnotations(), prefix+name) == asked
	}
	return r, current
}

// Encode returns the value of api.ReportAnnotation.
func (r *Report) Encode() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic("encode report: " + err.Error()) // strings, numbers and times
	}
	return string(b)
}

// StateOf returns what the report says of a node, or of a pod of a StatefulSet, that has a pod of this revision: its
// group, with an empty State if that does not follow from the report. Names that are not listed are of the one group that they can be of.
func (r *Report) StateOf(name, revision string) Group {
	var can []Group
	unlisted := 0 // nodes of no group
	for _, n := range r.Counts {
		unlisted += n
	}
	for _, g := range r.Groups {
		unlisted -= g.Count
		switch {
		case slices.Contains(g.Nodes, name):
			return g
		case len(g.Nodes) < g.Count && (g.State == Unavailable || (g.State == Updated) == (revision == r.Revision)):
			can = append(can, g)
		}
	}
	if len(can) != 1 || unlisted > 0 {
		return Group{}
	}
	return can[0]
}

// groupsOf sums up nodes, the largest groups first.
func groupsOf(nodes []NodeStatus, missing []MissingPod) []Group {
	why := map[string]string{}
	for _, m := range missing {
		why[m.Node] = m.Why
	}
	type kind struct {
		state        State
		reason       string
		awaitsImages bool
	}
	by := map[kind]*Group{}
	for _, n := range nodes {
		n.Reason = daemonset.Truncate(cmp.Or(why[n.Name], n.Reason), maxReason)
		k := kind{n.State, n.Reason, n.AwaitsImages}
		if by[k] == nil {
			by[k] = &Group{State: n.State, Reason: n.Reason, AwaitsImages: n.AwaitsImages}
		}
		if by[k].Count++; n.State != Updated && len(by[k].Nodes) < maxListed {
			by[k].Nodes = append(by[k].Nodes, n.Name)
		}
	}
	var groups []Group
	for _, g := range by {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason))
	})
	return groups[:min(len(groups), maxGroups)]
}
