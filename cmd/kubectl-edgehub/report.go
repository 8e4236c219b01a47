package main

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/podstatus"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// phase is the state of a rollout as a whole.
type phase string

const (
	complete phase = "complete" // every node that would get a pod of the target revision has one
	held     phase = "held"     // every node is updated but those that annotations hold
	updating phase = "updating" // it goes on by itself
	waiting  phase = "waiting"  // the rest waits for nodes to be Ready, or for owners
	paused   phase = "paused"   // by the annotation
	halted   phase = "halted"   // by the circuit breaker
	refused  phase = "refused"  // the apiserver does not let the controller delete pods
	invalid  phase = "invalid"  // the annotations cannot be carried out
)

// exitCode is that of a status command which ends with this phase.
func (s phase) exitCode() exitCode {
	switch s {
	case complete, held:
		return exitDone
	case updating, waiting:
		return exitUnderWay
	default:
		return exitHeldUp
	}
}

// revisionLabel on a pod or a ControllerRevision has its revision's hash.
const revisionLabel = appsv1.ControllerRevisionHashLabelKey

// report is all that status shows. As JSON it is an interface to scripts: fields
// are added, and never change their meaning.
type report struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Strategy  string `json:"strategy"`
	// Revision is the target; "" while it is not known.
	Revision string `json:"targetRevision"`
	State    phase  `json:"state"`
	// Message describes in a line how many nodes are in which state.
	Message string `json:"message"`
	// Advice describes what comes next, or what there is to do.
	Advice string `json:"advice"`
	// Warnings describe why the report may mislead.
	Warnings []string `json:"warnings,omitempty"`
	// Limits are those of AdvancedRollingUpdate.
	Limits *limits `json:"limits,omitempty"`
	// Counts has every state, with 0 where no node is in it.
	Counts map[rollout.State]int `json:"counts"`
	Nodes  []nodeReport          `json:"nodes"`

	// spoke is set when a condition of the controller's is about Revision.
	spoke bool
}

type limits struct {
	ReadyNodes          int    `json:"readyNodes"`
	UnavailableNodes    int    `json:"unavailableNodes"`
	MaxUnavailable      string `json:"maxUnavailable"`
	MaxUnavailableNodes int    `json:"maxUnavailableNodes"`
	Partition           string `json:"partition,omitempty"`
	NodeSelector        string `json:"nodeSelector,omitempty"`
}

type nodeReport struct {
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
}

// errNotOurs is returned for a DaemonSet that has not opted in.
type errNotOurs struct{ name string }

func (e errNotOurs) Error() string {
	return "daemonset " + e.name + " has not opted into an update strategy of edgehub: see kubectl rollout status for Kubernetes' own, " +
		"or kubectl edgehub --help for how to opt in"
}

// evaluate judges a rollout by its objects at the time now.
func evaluate(o objects, now time.Time) (*report, error) {
	r := &report{Namespace: o.daemonSet.Namespace, Name: o.daemonSet.Name, Nodes: []nodeReport{}, Counts: map[rollout.State]int{}}
	strategy, problem := daemonset.StrategyOf(o.daemonSet)
	r.Strategy = strategy.String()
	switch {
	case problem != "":
		r.wrong(problem)
	case strategy == daemonset.AdvancedRollingUpdate:
		r.judgeRollout(o, now)
	case strategy == daemonset.OTA:
		r.judgeOTA(o, now)
	default:
		return nil, errNotOurs{r.Namespace + "/" + r.Name}
	}
	r.describePods(o.pods)
	return r, nil
}

// describePods adds the status of each node's pod.
func (r *report) describePods(pods []*corev1.Pod) {
	of := map[string]podstatus.Summary{}
	for _, pod := range pods {
		of[pod.Name] = podstatus.Of(pod)
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		s := of[n.Pod] // zero for no pod
		n.ReadyContainers, n.Containers, n.PodStatus, n.Restarts = s.Ready, s.Containers, s.Status, s.Restarts
	}
}

func (r *report) wrong(problem string) {
	r.State, r.Message, r.Advice = invalid, "nothing is done", problem
}

// target sets the target revision, if it exists already.
func (r *report) target(o objects) (known bool) {
	revision := daemonset.NewestRevision(o.daemonSet, o.revisions)
	if revision == nil {
		r.State, r.Message = updating, rollout.AwaitRevision()[0].Message
		r.Advice = "Kubernetes makes the revision; this takes a moment"
		return false
	}
	r.Revision = revision.Labels[revisionLabel]
	return true
}

func (r *report) judgeRollout(o objects, now time.Time) {
	options, err := rollout.ParseOptions(o.daemonSet.Annotations)
	if err != nil {
		r.wrong(err.Error())
		return
	}
	if !r.target(o) {
		return
	}
	plan := makePlan(o, options, r.Revision, now)
	r.fill(&plan, rollout.States(), func(*rollout.NodeStatus) {})
	r.Limits = limitsOf(&plan, options)
	c := daemonset.Condition(o.daemonSet, rollout.ProgressingCondition)
	r.spoke = c != nil && rollout.RevisionIn(c.Message) == r.Revision
	r.sumUp(&plan, options, o.daemonSet)
}

// makePlan applies the controller's own rules to the present state. The circuit breaker depends
// on events of the past, so the controller's last condition counts if it is about this revision.
func makePlan(o objects, options rollout.Options, revision string, now time.Time) rollout.Plan {
	if c := daemonset.Condition(o.daemonSet, rollout.HaltedCondition); c != nil &&
		c.Status == corev1.ConditionFalse && rollout.RevisionIn(c.Message) == revision {
		options.Continue = revision
	}
	plan := rollout.NewPlan(rollout.Input{
		DaemonSet: o.daemonSet, Options: options, Revision: revision,
		Nodes: o.nodes, Pods: o.pods, Now: now,
		Observations: rollout.NewTrustingObservations(), Halted: rollout.HaltedRevision(o.daemonSet),
	})
	asItIs(&plan, time.Duration(o.daemonSet.Spec.MinReadySeconds)*time.Second, now)
	return plan
}

// fill adds the plan's nodes, each changed by adapt.
func (r *report) fill(plan *rollout.Plan, states []rollout.State, adapt func(*rollout.NodeStatus)) {
	for _, state := range states {
		r.Counts[state] = 0
	}
	for _, n := range plan.Nodes {
		adapt(&n)
		r.Counts[n.State]++
		r.Nodes = append(r.Nodes, nodeReport{
			Node: n.Name, State: n.State, Reason: n.Reason, Pod: n.Pod, Revision: n.Revision, AwaitsImages: n.AwaitsImages,
		})
	}
}

func limitsOf(plan *rollout.Plan, options rollout.Options) *limits {
	l := &limits{
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
func (r *report) sumUp(plan *rollout.Plan, options rollout.Options, ds *appsv1.DaemonSet) {
	conditions := map[appsv1.DaemonSetConditionType]appsv1.DaemonSetCondition{}
	for _, c := range rollout.Conditions(plan) {
		conditions[c.Type] = c
	}
	r.Message = plan.Summary()
	resume := "kubectl edgehub resume ds/" + r.Name + " -n " + r.Namespace
	switch conditions[rollout.ProgressingCondition].Reason {
	case rollout.ReasonComplete:
		r.State, r.Advice = complete, "every node runs the target revision"
	case rollout.ReasonHalted:
		r.State, r.Advice = halted, haltedBecause(plan, ds)+". To go on all the same: "+resume
	case rollout.ReasonPaused:
		r.State, r.Advice = paused, "no further pod is deleted. To go on: "+resume
	case rollout.ReasonWaiting:
		r.State, r.Advice = waiting, "every Ready node is updated; the others follow by themselves when they are Ready again"
		if plan.Counts[rollout.WaitingNotReady]+plan.Counts[rollout.Updated] < plan.Total() {
			r.Advice = "every Ready node that the annotations let go is updated; others follow by themselves when they are Ready again"
		}
	case rollout.ReasonHeldByPartition, rollout.ReasonHeldBySelector:
		r.State, r.Advice = held, "every node that the annotations let go is updated"
	case rollout.ReasonHeldByPlacement:
		r.State, r.Advice = complete, plan.Placement()
	default:
		r.State, r.Advice = updating, whatIsNext(plan, options)
		if why := refusedBecause(plan, ds); why != "" {
			r.State, r.Advice = refused, why
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

// warn adds a warning that nothing will happen.
func (r *report) warn(warning string) {
	r.Warnings = append(r.Warnings, warning)
	if r.State == updating {
		r.Advice = "it goes on when the controller runs"
	}
}

// onlyNotReadyLeft reports whether all Ready nodes are done.
func (r *report) onlyNotReadyLeft() bool {
	return r.State == waiting && r.Counts[rollout.WaitingForOwner] == 0
}
