// Package progress judges by the cluster's objects how far a rollout is, and shows it. It applies the
// controller's own rules, so a report is right even while the controller does not run.
//
// Evaluate is a pure function; a View belongs to one goroutine.
package progress

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/podstatus"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Objects are what a rollout is judged by, at one moment.
type Objects struct {
	Workload workload.Object
	// Revisions and Pods are those that Workload controls.
	Revisions []*appsv1.ControllerRevision
	Pods      []*corev1.Pod
	Nodes     []*corev1.Node
}

// ExitCode is what scripts branch on. The help of the command status explains the codes to them.
type ExitCode int

// The exit codes.
const (
	ExitDone     ExitCode = 0 // nothing is left to be done; what was asked for is done
	ExitFailed   ExitCode = 1 // the question could not be answered, or was wrong
	ExitUnderWay ExitCode = 2 // it goes on by itself
	ExitHeldUp   ExitCode = 3 // it does not go on until somebody does something
)

// Phase is the state of a rollout as a whole.
type Phase string

// The phases.
const (
	Complete Phase = "complete" // every node that would get a pod of the target revision has one
	Held     Phase = "held"     // every node is updated but those that annotations hold, or whose owners went back
	Updating Phase = "updating" // it goes on by itself
	Waiting  Phase = "waiting"  // the rest waits for nodes to be Ready, or for owners
	Paused   Phase = "paused"   // by the annotation
	Halted   Phase = "halted"   // by the circuit breaker
	Missing  Phase = "missing"  // a node lacks its pod, and Kubernetes does not bring one
	Refused  Phase = "refused"  // the apiserver does not let the controller delete pods
	Invalid  Phase = "invalid"  // the annotations cannot be carried out
)

// ExitCode is that of a status command which ends with this phase.
func (s Phase) ExitCode() ExitCode {
	switch s {
	case Complete, Held:
		return ExitDone
	case Updating, Waiting:
		return ExitUnderWay
	default:
		return ExitHeldUp
	}
}

// revisionLabel on a pod or a ControllerRevision has its revision's hash.
const revisionLabel = appsv1.ControllerRevisionHashLabelKey

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
	// Limits are those of AdvancedRollingUpdate.
	Limits *Limits `json:"limits,omitempty"`
	// Counts has every state, with 0 where no node is in it.
	Counts map[rollout.State]int `json:"counts"`
	// Missing are the nodes without a pod, according to the annotations of the Nodes.
	Missing []MissingPod `json:"missing,omitempty"`
	// Nodes are by name. With a StatefulSet they are its pods, by ordinal.
	Nodes []Node `json:"nodes"`

	// Spoke is set when a condition of the controller's is about Revision.
	Spoke bool `json:"-"`
	// stopped is the one of Warnings that is about the controller.
	stopped string
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
	Node     string        `json:"node"`
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

// MissingPod is a node without its pod: Kubernetes has not created it, or the scheduler does not place it.
type MissingPod struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
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

// Evaluate judges a rollout by its objects at the time now.
func Evaluate(o Objects, now time.Time) (*Report, error) {
	r := &Report{
		Kind: workload.KindOf(o.Workload), Namespace: o.Workload.GetNamespace(), Name: o.Workload.GetName(),
		Nodes: []Node{}, Counts: map[rollout.State]int{},
	}
	strategy, problem := workload.StrategyOf(o.Workload)
	r.Strategy = strategy.String()
	switch {
	case problem != "":
		r.wrong(problem)
	case strategy == daemonset.Unmanaged:
		return nil, NotOptedIn{o.Workload}
	default:
		r.judge(o, now)
	}
	r.describePods(o, now)
	return r, nil
}

// judge is for a workload that has opted in.
func (r *Report) judge(o Objects, now time.Time) {
	revision := workload.TargetRevision(o.Workload, o.Revisions)
	if revision != nil {
		r.Revision = daemonset.HashOf(revision)
	}
	switch w := o.Workload.(type) {
	case *appsv1.StatefulSet:
		r.judgeStatefulSet(w, o, now)
	case *appsv1.DaemonSet:
		if strategy, _ := daemonset.StrategyOf(w); strategy == daemonset.OTA {
			r.judgeOTA(w, o, now)
		} else {
			r.judgeRollout(w, o, now)
		}
		r.findMissing(o.Nodes)
	}
}

// findMissing adds the nodes without their pod to the report.
func (r *Report) findMissing(nodes []*corev1.Node) {
	told := map[string]upgrade.Missing{}
	for _, node := range nodes {
		list, err := upgrade.MissingOn(node)
		if err != nil {
			continue // nobody but the controller and the node itself writes it
		}
		for _, m := range list {
			if m.Kind == string(r.Kind) && m.Namespace == r.Namespace && m.Name == r.Name {
				told[node.Name] = m
			}
		}
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if m, ok := told[n.Node]; ok && n.State == rollout.Unavailable {
			n.Reason = m.Why
			r.Missing = append(r.Missing, MissingPod{Node: n.Node, Since: m.Since, Why: m.Why})
		}
	}
	if len(r.Missing) > 0 {
		r.State = Missing
		r.Advice = "mend what keeps the pods from coming; they come by themselves then, and the rest goes on. More: kubectl describe " + r.Kind.Lower() + " " + r.Name + " -n " + r.Namespace
	}
}

// describePods adds the status of each node's pod, and what its owner decided.
func (r *Report) describePods(o Objects, now time.Time) {
	policy, err := upgrade.ParsePolicy(o.Workload.GetAnnotations(), r.Strategy == daemonset.OTA.String())
	if err != nil {
		return // r is Invalid, and has no nodes
	}
	of := map[string]*corev1.Pod{}
	for _, pod := range o.Pods {
		of[pod.Name] = pod
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		pod := of[n.Pod]
		if pod == nil {
			continue
		}
		s := podstatus.Of(pod)
		n.ReadyContainers, n.Containers, n.PodStatus, n.Restarts = s.Ready, s.Containers, s.Status, s.Restarts
		n.Owner = ownerOf(pod, policy.MaxHold, now)
	}
}

func (r *Report) wrong(problem string) {
	r.Revision, r.State, r.Message, r.Advice = "", Invalid, "nothing is done", problem
}

// awaitsRevision reports whether the target revision does not exist yet.
func (r *Report) awaitsRevision() bool {
	if r.Revision != "" {
		return false
	}
	r.State, r.Message = Updating, rollout.AwaitRevision()[0].Message
	r.Advice = "Kubernetes makes the revision; this takes a moment"
	return true
}

func (r *Report) judgeRollout(ds *appsv1.DaemonSet, o Objects, now time.Time) {
	options, err := rollout.ParseOptions(ds.Annotations)
	if err != nil {
		r.wrong(err.Error())
		return
	}
	if r.awaitsRevision() {
		return
	}
	plan := makePlan(ds, o, options, r.Revision, now)
	r.fill(&plan, rollout.States(), func(*rollout.NodeStatus) {})
	r.Limits = limitsOf(&plan, options)
	c := daemonset.Condition(ds, rollout.ProgressingCondition)
	r.Spoke = c != nil && rollout.RevisionIn(c.Message) == r.Revision
	r.sumUp(&plan, options, ds)
}

// makePlan applies the controller's own rules to the present state. The circuit breaker depends
// on events of the past, so the controller's last condition counts if it is about this revision.
func makePlan(ds *appsv1.DaemonSet, o Objects, options rollout.Options, revision string, now time.Time) rollout.Plan {
	if c := daemonset.Condition(ds, rollout.HaltedCondition); c != nil &&
		c.Status == corev1.ConditionFalse && rollout.RevisionIn(c.Message) == revision {
		options.Continue = revision
	}
	plan := rollout.NewPlan(rollout.Input{
		DaemonSet: ds, Options: options, Revision: revision,
		Nodes: o.Nodes, Pods: o.Pods, Now: now,
		Observations: rollout.NewTrustingObservations(), Halted: rollout.HaltedRevision(ds),
		RolledBack: func(pod *corev1.Pod) bool { return rolledBack(pod, revision) },
	})
	asItIs(&plan, time.Duration(ds.Spec.MinReadySeconds)*time.Second, now)
	return plan
}

const adviceWentBack = "the owners of the others went back; they upgrade again, or get the next revision"

// rolledBack reports whether the owner of pod went back from the revision, as the controller has found.
func rolledBack(pod *corev1.Pod, revision string) bool {
	c := upgrade.Condition(pod, upgrade.RolledBackCondition)
	wish, ok, err := upgrade.RollbackOf(pod)
	return c != nil && c.Status == corev1.ConditionTrue && ok && err == nil && wish.From == revision
}

// fill adds the plan's nodes, each changed by adapt.
func (r *Report) fill(plan *rollout.Plan, states []rollout.State, adapt func(*rollout.NodeStatus)) {
	for _, state := range states {
		r.Counts[state] = 0
	}
	for _, n := range plan.Nodes {
		adapt(&n)
		r.Counts[n.State]++
		r.Nodes = append(r.Nodes, Node{
			Node: n.Name, State: n.State, Reason: n.Reason, Pod: n.Pod, Revision: n.Revision, AwaitsImages: n.AwaitsImages,
		})
	}
}

func limitsOf(plan *rollout.Plan, options rollout.Options) *Limits {
	l := &Limits{
		ReadyNodes: plan.Ready, UnavailableNodes: plan.Unavailable,
		MaxUnavailable: options.MaxUnavailable.String(), MaxUnavailableNodes: plan.Max,
	}
	if options.Partition != (rollout.Amount{}) {
		l.Partition = options.Partition.String()
	}
	if options.NodeSelector != nil {
		l.NodeSelector = options.NodeSelector.String()
	}
	return l
}

// sumUp sets the phase of the whole rollout, in the words of the conditions.
func (r *Report) sumUp(plan *rollout.Plan, options rollout.Options, ds *appsv1.DaemonSet) {
	conditions := map[appsv1.DaemonSetConditionType]appsv1.DaemonSetCondition{}
	for _, c := range rollout.Conditions(plan) {
		conditions[c.Type] = c
	}
	r.Message = plan.Summary()
	resume := "kubectl edgehub resume ds/" + r.Name + " -n " + r.Namespace
	switch conditions[rollout.ProgressingCondition].Reason {
	case rollout.ReasonComplete:
		r.State, r.Advice = Complete, "every node runs the target revision"
	case rollout.ReasonHalted:
		r.State, r.Advice = Halted, haltedBecause(plan, ds)+". To go on all the same: "+resume
	case rollout.ReasonPaused:
		r.State, r.Advice = Paused, "no further pod is deleted. To go on: "+resume
	case rollout.ReasonWaiting:
		r.State, r.Advice = Waiting, "every Ready node is updated; the others follow by themselves when they are Ready again"
		if plan.Counts[rollout.WaitingNotReady]+plan.Counts[rollout.Updated] < plan.Total() {
			r.Advice = "every Ready node that the annotations let go is updated; others follow by themselves when they are Ready again"
		}
	case rollout.ReasonHeldByOwner:
		r.State, r.Advice = Waiting, fmt.Sprintf("the others follow by themselves when the holds of their owners end, after %v at most", options.Policy.MaxHold)
	case rollout.ReasonHeldByPartition, rollout.ReasonHeldBySelector:
		r.State, r.Advice = Held, "every node that the annotations let go is updated"
	case rollout.ReasonHeldByPlacement:
		r.State, r.Advice = Complete, plan.Placement()
	case rollout.ReasonRolledBack:
		r.State, r.Advice = Held, adviceWentBack
		if plan.Counts[rollout.Pending] > 0 {
			r.State, r.Advice = Updating, whatIsNext(plan, options)
		}
	default:
		r.State, r.Advice = Updating, whatIsNext(plan, options)
		if why := refusedBecause(plan, ds); why != "" {
			r.State, r.Advice = Refused, why
		}
	}
}

func whatIsNext(plan *rollout.Plan, options rollout.Options) string {
	switch pending := plan.Counts[rollout.Pending]; {
	case pending > 0 && pending == plan.AwaitImages:
		return fmt.Sprintf("the next pods follow when their images are there, or after %v without them", options.PrepullTimeout)
	case pending > 0 && plan.Unavailable >= plan.Max:
		return fmt.Sprintf("the next pods follow when fewer than %d Ready nodes are unavailable", plan.Max)
	default:
		return "it goes on by itself"
	}
}

// haltedBecause prefers the message of the controller, which has seen what happened.
func haltedBecause(plan *rollout.Plan, ds *appsv1.DaemonSet) string {
	if c := daemonset.Condition(ds, rollout.HaltedCondition); c != nil && c.Status == corev1.ConditionTrue && rollout.RevisionIn(c.Message) == plan.Revision {
		return c.Message
	}
	return rollout.Conditions(plan)[2].Message
}

// refusedBecause returns the controller's message when the apiserver refuses to delete pods,
// which only the controller can know, and "" otherwise.
func refusedBecause(plan *rollout.Plan, ds *appsv1.DaemonSet) string {
	c := daemonset.Condition(ds, rollout.ProgressingCondition)
	if c == nil || c.Reason != rollout.ReasonRefused || rollout.RevisionIn(c.Message) != plan.Revision {
		return ""
	}
	return c.Message
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
