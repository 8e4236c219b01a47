// Package events reports what the controller does with a DaemonSet or StatefulSet, in Events and in the
// log. Each fact is reported once, when it becomes true: the caller keeps what was
// reported last, and after a restart the conditions on the DaemonSet record it.
package events

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// Reasons of Events besides those of the condition.
const (
	reasonInvalidStrategy = "InvalidUpdateStrategy"
	reasonMarkingFailed   = "MarkingFailed"
	reasonOptedOut        = "UpgradeMarksRemoved"
	reasonOrderedReady    = "PodsAreMadeInOrder"
)

// Recorder reports what happens to workloads, in the log and in `kubectl describe`. It is
// safe for concurrent use.
//
// It writes core/v1 Events: the recorder for events.k8s.io folds Events of equal
// reason into the first one's message, and "3 of 5 pods" would never become "2 of
// 5".
type Recorder struct {
	events record.EventRecorder
	log    *slog.Logger
}

// Reported is what was last reported about a workload: the problem with what it asks for,
// pods that could not be marked, and the sum of the marks. Each is "" when there is nothing
// to report.
type Reported struct {
	problem  string
	ordered  bool // that OrderedReady may delay the next pod
	unmarked string
	summary  string
	// notRolledBack is as unmarked, of pods whose owners want an earlier revision.
	notRolledBack string
}

// NewRecorder returns a recorder that runs until ctx is done, and drops what is not
// written by then. component is the source that Events name.
func NewRecorder(ctx context.Context, client typedcorev1.EventsGetter, component string, log *slog.Logger) *Recorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	return &Recorder{events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component}), log: log}
}

func (r *Recorder) normal(o workload.Object, reason, message string) {
	r.events.Event(o, corev1.EventTypeNormal, reason, truncated(message))
}

func (r *Recorder) warning(o workload.Object, reason, message string) {
	r.events.Event(o, corev1.EventTypeWarning, reason, truncated(message))
}

func (r *Recorder) logFor(o workload.Object) *slog.Logger {
	return r.log.With(workload.KindOf(o).Lower(), o.GetNamespace()+"/"+o.GetName())
}

// Problem reports what is wrong with what o asks for; "" is nothing.
func (r *Recorder) Problem(o workload.Object, last *Reported, problem string) {
	if problem != "" && problem != last.problem {
		r.logFor(o).Warn("workload asks for an update strategy that cannot be carried out", "problem", problem)
		r.warning(o, reasonInvalidStrategy, problem)
	}
	last.problem = problem
}

// Ordered warns of a StatefulSet that may leave nodes without their pod: until every pod with a lower
// ordinal is available, on whatever node, Kubernetes does not make the next pod of one that was upgraded
// (processReplica in stateful_set_control.go).
func (r *Recorder) Ordered(sts *appsv1.StatefulSet, last *Reported) {
	ordered := sts.Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement && sts.Spec.Replicas != nil && *sts.Spec.Replicas > 1
	if ordered && !last.ordered {
		const message = "spec.podManagementPolicy is OrderedReady: a pod that is upgraded has no successor until all pods with lower ordinals are Ready, " +
			"so a node that is away delays the others; Parallel does not, and takes a new StatefulSet"
		r.logFor(sts).Warn("StatefulSet makes its pods in order, which may delay those that are upgraded")
		r.warning(sts, reasonOrderedReady, message)
	}
	last.ordered = ordered
}

// Marked sums up what a reconcile did to the pods. waiting is true if patches that failed
// have yet to be tried again.
func (r *Recorder) Marked(o workload.Object, last *Reported, revision string, p status.MarkPlan, done podclient.PatchResult, waiting bool) {
	r.patchFailure(o, last, done, waiting)
	if len(done.Changed) == 0 {
		return
	}
	reason := status.ReasonUpToDate
	summary := "every pod runs controllerrevision " + revision
	if p.RolledBack > 0 {
		summary = fmt.Sprintf("no pod needs an upgrade to controllerrevision %s; %d of %d were rolled back by their owners", revision, p.RolledBack, p.Total)
	}
	if p.Need > 0 {
		reason = status.ReasonUpgradeAvailable
		summary = fmt.Sprintf("%d of %d pods need an upgrade to controllerrevision %s; each starts when its node is told to upgrade it",
			p.Need, p.Total, revision)
	}
	if p.Blocked > 0 {
		summary += fmt.Sprintf(", which %d refuse, since they would get no pod of it; kubectl edgehub status says why", p.Blocked)
	}
	r.logFor(o).Info("pods marked", "revision", revision, "needUpgrade", p.Need, "blocked", p.Blocked, "pods", p.Total, "changed", len(done.Changed))
	if summary != last.summary {
		r.normal(o, reason, summary)
		last.summary = summary
	}
}

// RolloutMarked posts an Event only if something failed: Rollout reports that a rollout began
// with its images. waiting is as for Marked.
func (r *Recorder) RolloutMarked(o workload.Object, last *Reported, revision string, done podclient.PatchResult, waiting bool) {
	r.patchFailure(o, last, done, waiting)
	if len(done.Changed) > 0 {
		r.logFor(o).Info("pods have other annotations for their nodes: which images to pull, and what owners may do",
			"revision", revision, "changed", len(done.Changed))
	}
}

// patchFailure does not report conflicts: the next try, at once, resolves them.
func (r *Recorder) patchFailure(o workload.Object, last *Reported, done podclient.PatchResult, waiting bool) {
	failure := ""
	if done.Failed > 0 {
		failure = done.Err().Error() + "; it is tried again"
	}
	if failure == "" && waiting {
		return
	}
	if failure != "" && failure != last.unmarked {
		r.logFor(o).Warn("pods could not be marked", "problem", failure)
		r.warning(o, reasonMarkingFailed, failure)
	}
	last.unmarked = failure
}

// Unmarked reports that the marks were removed from pods. rollout is true if the marks were
// those of a rollout.
func (r *Recorder) Unmarked(o workload.Object, last *Reported, pods int, rollout bool) {
	last.summary, last.unmarked = "", ""
	if pods == 0 {
		return
	}
	r.logFor(o).Info("marks taken off pods: the workload no longer asks for them", "pods", pods)
	message := "the %s no longer asks for OTA: %d pods no longer say whether they need an upgrade"
	if rollout {
		message = "the %s no longer asks for an update strategy: %d pods no longer have their nodes pull images, or a policy for their owners"
	}
	r.normal(o, reasonOptedOut, fmt.Sprintf(message, workload.KindOf(o), pods))
}

// maxEventMessage is the apiserver's limit for the message of a core/v1 Event.
const maxEventMessage = 1024

func truncated(message string) string {
	const more = "..."
	if len(message) <= maxEventMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxEventMessage-len(more)], "") + more
}
