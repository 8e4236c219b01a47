package controller

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// Reasons of Events besides those of the condition.
const (
	reasonInvalidStrategy = "InvalidUpdateStrategy"
	reasonMarkingFailed   = "MarkingFailed"
	reasonOptedOut        = "UpgradeMarksRemoved"
)

// events reports what happens to a DaemonSet where people look for it, in `kubectl
// describe`. The same thing is reported once, until something else is.
//
// They are core/v1 Events: the recorder for events.k8s.io folds Events of equal
// reason into the first one's words, and "3 of 5 pods" would never become "2 of
// 5".
type events struct {
	recorder record.EventRecorder
}

// newEvents returns a recorder that runs until ctx is done, and drops what is not
// written by then.
func newEvents(ctx context.Context, client typedcorev1.EventsGetter) *events {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	return &events{recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Name})}
}

func (e *events) normal(ds *appsv1.DaemonSet, reason, message string) {
	e.recorder.Event(ds, corev1.EventTypeNormal, reason, message)
}

func (e *events) warning(ds *appsv1.DaemonSet, reason, message string) {
	e.recorder.Event(ds, corev1.EventTypeWarning, reason, message)
}

// reportProblem says what is wrong with what ds asks for; "" is nothing.
func (r *reconciler) reportProblem(ds *appsv1.DaemonSet, t *state, problem string) {
	if problem != "" && problem != t.problem {
		r.log.Warn("DaemonSet asks for an update strategy that cannot be carried out",
			"daemonset", ds.Namespace+"/"+ds.Name, "problem", problem)
		r.events.warning(ds, reasonInvalidStrategy, truncated(problem))
	}
	t.problem = problem
}

// reportMarked sums up what a reconcile did to the pods.
func (r *reconciler) reportMarked(ds *appsv1.DaemonSet, t *state, revision string, p plan, done patchResult) {
	r.reportPatchFailure(ds, t, done)
	if len(done.changed) == 0 {
		return
	}
	reason := reasonUpToDate
	summary := "every pod runs controllerrevision " + revision
	if p.need > 0 {
		reason = reasonUpgradeAvailable
		summary = fmt.Sprintf("%d of %d pods need an upgrade to controllerrevision %s; each starts when its node is told to upgrade it",
			p.need, p.total, revision)
	}
	r.log.Info("pods marked", "daemonset", ds.Namespace+"/"+ds.Name, "revision", revision,
		"needUpgrade", p.need, "pods", p.total, "changed", len(done.changed))
	if summary != t.summary {
		r.events.normal(ds, reason, summary)
		t.summary = summary
	}
}

// reportPatchFailure is silent about conflicts: the next try, at once, settles them.
func (r *reconciler) reportPatchFailure(ds *appsv1.DaemonSet, t *state, done patchResult) {
	failure := ""
	if done.failed > 0 {
		failure = done.err().Error() + "; it is tried again"
	}
	if failure == "" && len(t.podBackoff.due) > 0 {
		return // those that failed before have yet to be tried again
	}
	if failure != "" && failure != t.unmarked {
		r.log.Warn("pods could not be marked", "daemonset", ds.Namespace+"/"+ds.Name, "problem", failure)
		r.events.warning(ds, reasonMarkingFailed, truncated(failure))
	}
	t.unmarked = failure
}

// reportUnmarked says that the controller lets go of ds.
func (r *reconciler) reportUnmarked(ds *appsv1.DaemonSet, t *state, pods int) {
	t.summary, t.unmarked = "", ""
	if pods == 0 {
		return
	}
	r.log.Info("marks taken off pods: the DaemonSet no longer asks for them", "daemonset", ds.Namespace+"/"+ds.Name, "pods", pods)
	message := "the DaemonSet no longer asks for OTA: %d pods no longer say whether they need an upgrade"
	if t.marked == prepullMarks {
		message = "the DaemonSet no longer asks for an update strategy: %d pods no longer have their nodes pull images"
	}
	r.events.normal(ds, reasonOptedOut, fmt.Sprintf(message, pods))
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
