package rollout

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is where a node stands in a rollout. Every node that should run the
// daemon, or runs an old pod of it, is in exactly one.
type State string

// The states. Their values are those of the metric's label and of JSON.
const (
	// Updated nodes have an available pod of the target revision, or are NotReady
	// and have a pod of it, which is all that can be known.
	Updated State = "updated"
	// Unavailable nodes are Ready and have no available pod of any revision: most of
	// them are being updated right now.
	Unavailable State = "unavailable"
	// Pending nodes have an available old pod and wait to be admitted, or for
	// their images.
	Pending State = "pending"
	// WaitingNotReady nodes are NotReady and lack a pod of the target revision.
	WaitingNotReady State = "waiting_not_ready"
	// HeldByOwner nodes keep their old pod because of api.HoldAnnotation on it.
	HeldByOwner State = "held_by_owner"
	// The other nodes keep their old pod because of an annotation of the DaemonSet, or
	// because the circuit breaker is open.
	HeldBySelector  State = "held_by_node_selector"
	HeldByPartition State = "held_by_partition"
	HeldByPause     State = "held_by_pause"
	HeldByBreaker   State = "held_by_breaker"
	// HeldByPlacement nodes have an old pod and should not run the daemon, because of a taint
	// that it does not tolerate, say: they would get no pod of the target revision.
	HeldByPlacement State = "held_by_placement"
	// RolledBack nodes keep a pod of an earlier revision because their owner went back to it.
	RolledBack State = "rolled_back"
)

// States returns all states in the order in which they are shown.
func States() []State {
	return []State{
		Updated, Unavailable, Pending, WaitingNotReady,
		HeldByOwner, HeldBySelector, HeldByPartition, HeldByPause, HeldByBreaker, HeldByPlacement, RolledBack,
	}
}

// NodeStatus is one node's part of a Plan.
type NodeStatus struct {
	Name  string
	State State
	// Reason is why the state is not Updated; "" when the state is explanation enough.
	Reason string
	// Pod and Revision are those of the only pod on the node; "" when there is
	// none or more than one.
	Pod      string
	Revision string
	// AwaitsImages is set on Pending nodes that keep their old pod until the images
	// of the target are there.
	AwaitsImages bool
	// Refused is set on nodes that are Pending or Unavailable and whose old pod is still
	// there because its deletion was refused. Reason names who refused it.
	Refused bool
}

// Deletion is a pod to delete, with its UID as precondition.
type Deletion struct {
	Pod *corev1.Pod
	// NotReady is set when the pod is deleted because it is not Ready, whatever the maximum
	// is. Its resourceVersion has to be a precondition as well: if it is Ready by now, it
	// would be one too many.
	NotReady bool
	// Unchanged has the resourceVersion of Pod be a precondition as well: its node may have reported meanwhile what the pod
	// runs.
	Unchanged bool
	Reason    string
	// Held is why the pod is deleted although its owner holds it; "" if nobody does.
	Held string
	// unavailable is why the pod was not available; "" if it was.
	unavailable string
}

// Plan is what to do now, and the state of every node.
type Plan struct {
	// Revision is the target.
	Revision string
	// Delete are the pods to delete now.
	Delete []Deletion
	// Pulls are the old pods that should ask their nodes, by a Target with this
	// Prepull, to pull the images of the target; no other pod should. Pods that already
	// ask keep their time.
	Pulls map[types.UID]time.Time
	// Nodes are all nodes that should run the daemon, or run an old pod of it, by name. Counts sums them
	// up; it has no entry for a state that no node is in.
	Nodes  []NodeStatus
	Counts map[State]int
	// Missing are the nodes whose pod has not come yet. Lacking are those of them for which Kubernetes has made none
	// for LackGrace: while there are any, no pod is deleted unless api.ContinueAnnotation names this revision. LackingWhy is
	// that of Input.
	Missing    []Missing
	Lacking    []string
	LackingWhy string
	// SuccessorsRefused is whether pods are kept because the apiserver would refuse those after them.
	SuccessorsRefused bool
	// AwaitImages is how many of Nodes are Pending because of images.
	AwaitImages int
	// Refused is how many of Nodes keep their pod because its deletion was refused, and
	// RefusedInARow how often that happened since a pod was deleted.
	Refused       int
	RefusedInARow int
	// Ready is how many of Nodes are, Unavailable how many of those have no
	// available pod once Delete is done, and Max how many may.
	Ready       int
	Unavailable int
	Max         int
	// Breaker is the state of the circuit breaker.
	Breaker Breaker
	// pods is whether Nodes are the pods of a StatefulSet.
	pods bool
	// Wake is when to call NewPlan again at the latest, though nothing has happened;
	// zero when only an event can change anything.
	Wake time.Time
}

// Complete reports whether there is nothing left to do, not even later: the nodes that would
// get no new pod do not count.
func (p *Plan) Complete() bool { return p.Counts[Updated]+p.Counts[HeldByPlacement] == len(p.Nodes) }

// wakeAt sets Wake to t if that is earlier. The zero time is never.
func (p *Plan) wakeAt(t time.Time) {
	if !t.IsZero() && (p.Wake.IsZero() || t.Before(p.Wake)) {
		p.Wake = t
	}
}
