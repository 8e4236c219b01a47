// Package progress shows how far a rollout is: what the controller says, in rollout.Report on the workload, and beside it
// what each pod reports and what the owners of the nodes have decided. It applies no rule of the controller's, so the two
// cannot differ.
//
// Evaluate is a pure function; a View belongs to one goroutine.
package progress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api/podstatus"
)

// Report is all that status shows. As JSON it is an interface to scripts: fields
// are added, and never change their meaning.
type Report struct {
	Kind      workload.Kind `json:"kind"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Strategy  string        `json:"strategy"`
	// Revision is the target; "" while it is not known.
	Revision string `json:"targetRevision"`
	State    Phase  `json:"state"`
	// Message describes in a line how many nodes are in which state.
	Message string `json:"message"`
	// Advice describes what comes next, or what there is to do.
	Advice string `json:"advice"`
	// Warnings describe why the report may mislead.
	Warnings []string `json:"warnings,omitempty"`
	// Limits are those of AdvancedRollingUpdate, while nodes are pending.
	Limits *Limits `json:"limits,omitempty"`
	// Counts has every state, with 0 where no node is in it; it is empty if the controller says nothing.
	Counts map[rollout.State]int `json:"counts"`
	// Missing are the first nodes without a pod that should have had one for a while.
	Missing []rollout.MissingPod `json:"missing,omitempty"`
	// Nodes are by name. With a StatefulSet they are its pods, by ordinal.
	Nodes []Node `json:"nodes"`

	// Spoke is set when there is a report on the workload's current spec and annotations.
	Spoke bool `json:"-"`
	// stopped is the one of Warnings that is about the controller.
	stopped string
	groups  []rollout.Group // as the controller has them
}

// Limits are how many nodes AdvancedRollingUpdate may take at a time, and which.
type Limits struct {
	ReadyNodes          int    `json:"readyNodes"`
	UnavailableNodes    int    `json:"unavailableNodes"`
	MaxUnavailable      string `json:"maxUnavailable"`
	MaxUnavailableNodes int    `json:"maxUnavailableNodes"`
	Partition           string `json:"partition,omitempty"`
	NodeSelector        string `json:"nodeSelector,omitempty"`
}

// Node is one node that should run the daemon, or one pod of a StatefulSet.
type Node struct {
	Node string `json:"node"`
	// State is "" if it does not follow from the report.
	State    rollout.State `json:"state"`
	Reason   string        `json:"reason,omitempty"`
	Pod      string        `json:"pod,omitempty"`
	Revision string        `json:"revision,omitempty"`
	// ReadyContainers of Containers, PodStatus and Restarts are Pod's, as in kubectl get
	// pods.
	ReadyContainers int    `json:"readyContainers"`
	Containers      int    `json:"containers"`
	PodStatus       string `json:"podStatus,omitempty"`
	Restarts        int32  `json:"restarts"`
	// AwaitsImages is set where the old pod is kept until the images are there.
	AwaitsImages bool `json:"awaitsImages,omitempty"`
	Owner
}

// NotOptedIn is returned for a DaemonSet or StatefulSet that has not opted in.
type NotOptedIn struct{ Workload workload.Object }

func (e NotOptedIn) Error() string {
	return NameOf(e.Workload) +
		" has not opted into an update strategy of edgehub: see kubectl rollout status for Kubernetes' own, " +
		"or kubectl edgehub --help for how to opt in"
}

// NameOf returns w's kind, namespace and name, for messages.
func NameOf(w workload.Object) string {
	return fmt.Sprintf("%s %s/%s", workload.KindOf(w).Lower(), w.GetNamespace(), w.GetName())
}

// Evaluate returns the report of w, whose pods are those that it controls, at the time now.
func Evaluate(w workload.Object, pods []*corev1.Pod, now time.Time) (*Report, error) {
	r := &Report{
		Kind: workload.KindOf(w), Namespace: w.GetNamespace(), Name: w.GetName(),
		Nodes: []Node{}, Counts: map[rollout.State]int{},
	}
	strategy, problem := workload.StrategyOf(w)
	r.Strategy = strategy.String()
	if strategy == daemonset.Unmanaged && problem == "" {
		return nil, NotOptedIn{w}
	}
	parse := rollout.ParseOptions
	if strategy == daemonset.OTA {
		parse = rollout.ParseOTA
	}
	options, err := parse(w.GetAnnotations())
	if problem == "" && err != nil {
		problem = err.Error()
	}
	if problem != "" {
		r.State, r.Message, r.Advice = Invalid, "nothing is done", problem
		return r, nil
	}
	said, current := rollout.ReportOn(w)
	switch {
	case said == nil:
		r.unknown(w)
	case !current:
		r.State, r.Message, r.Advice = Updating, "the controller has yet to see the last change", "this takes a moment"
	default:
		r.repeat(said, options, w)
	}
	r.addNodes(cmp.Or(said, &rollout.Report{}), current, pods, options.Policy.MaxHold, now)
	return r, nil
}

// unknown is for a workload without a report. Its conditions may be from before its last change.
func (r *Report) unknown(w workload.Object) {
	r.State, r.Advice = Unknown, "the controller has said nothing yet"
	r.Message = "it is not known where the nodes stand"
	var updated, all, available int32
	var seen int64
	switch w := w.(type) {
	case *appsv1.DaemonSet:
		updated, all, available, seen = w.Status.UpdatedNumberScheduled, w.Status.DesiredNumberScheduled, w.Status.NumberAvailable, w.Status.ObservedGeneration
	case *appsv1.StatefulSet:
		updated, all, available, seen = w.Status.UpdatedReplicas, w.Status.Replicas, w.Status.AvailableReplicas, w.Status.ObservedGeneration
	}
	if seen == w.GetGeneration() {
		r.Message += fmt.Sprintf("; Kubernetes counts %d of %d pods of the newest revision, and %d available ones of any", updated, all, available)
	}
}

// repeat copies the controller's report on the current spec of w.
func (r *Report) repeat(said *rollout.Report, options rollout.Options, w workload.Object) {
	r.Spoke, r.Revision, r.Message, r.Missing, r.groups = true, said.Revision, said.Message, said.Missing, said.Groups
	states := rollout.States()
	if r.Strategy == daemonset.OTA.String() {
		states = rollout.OTAStates()
	}
	for _, state := range states {
		r.Counts[state] = 0
	}
	maps.Copy(r.Counts, said.Counts)
	if l := said.Limits; l != nil {
		r.Limits = &Limits{
			ReadyNodes: l.Ready, UnavailableNodes: l.Unavailable, MaxUnavailable: options.MaxUnavailable.String(), MaxUnavailableNodes: l.Max,
		}
		if options.Partition != (rollout.Amount{}) {
			r.Limits.Partition = options.Partition.String()
		}
		if options.NodeSelector != nil {
			r.Limits.NodeSelector = options.NodeSelector.String()
		}
	}
	r.State, r.Advice = r.phase(said.Reason, options, w)
}

// total is how many nodes there are, whether or not each is known by name.
func (r *Report) total() (n int) {
	for _, count := range r.Counts {
		n += count
	}
	return n
}

// addNodes adds the nodes that the controller or a pod names, with the state that the controller says and what the pod reports.
func (r *Report) addNodes(said *rollout.Report, current bool, pods []*corev1.Pod, maxHold time.Duration, now time.Time) {
	on := map[string][]*corev1.Pod{}
	for _, g := range said.Groups {
		for _, name := range g.Nodes {
			on[name] = nil
		}
	}
	for _, pod := range pods {
		name := pod.Name
		if r.Kind == workload.DaemonSet {
			name = rollout.NodeOf(pod)
		}
		if pod.DeletionTimestamp == nil && name != "" {
			on[name] = append(on[name], pod)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(on), r.order) {
		n := Node{Node: name}
		if r.Kind == workload.StatefulSet {
			n.Node, n.Pod = "", name
		}
		if len(on[name]) == 1 { // else it is not known whose state that is
			n.describe(on[name][0], maxHold, now)
		}
		if current {
			g := said.StateOf(name, n.Revision)
			n.State, n.Reason, n.AwaitsImages = g.State, g.Reason, g.AwaitsImages
		}
		r.Nodes = append(r.Nodes, n)
	}
}

// describe adds the status of n's pod, and what its owner decided.
func (n *Node) describe(pod *corev1.Pod, maxHold time.Duration, now time.Time) {
	s := podstatus.Of(pod)
	n.Node, n.Pod, n.Revision = cmp.Or(n.Node, pod.Spec.NodeName), pod.Name, pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	n.ReadyContainers, n.Containers, n.PodStatus, n.Restarts = s.Ready, s.Containers, s.Status, s.Restarts
	n.Owner = ownerOf(pod, maxHold, now)
}

// order sorts names, those of a StatefulSet's pods by their ordinal: db-9 comes before db-10.
func (r *Report) order(a, b string) int {
	if r.Kind == workload.StatefulSet {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

// Warn adds the warning that nothing will happen, since the controller does not run.
func (r *Report) Warn(warning string) {
	r.stopped = warning
	r.Warnings = append(r.Warnings, warning)
	if r.State == Updating {
		r.Advice = "it goes on when the controller runs"
	}
}

// OnlyNotReadyLeft reports whether all Ready nodes are done.
func (r *Report) OnlyNotReadyLeft() bool {
	return r.State == Waiting && r.Counts[rollout.WaitingForOwner]+r.Counts[rollout.HeldByOwner] == 0
}
