// Package events reports what the controller does with a DaemonSet, in Events and in the
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
)

// Reasons of Events besides those of the condition.
const (
	reasonInvalidStrategy = "InvalidUpdateStrategy"
	reasonMarkingFailed   = "MarkingFailed"
	reasonOptedOut        = "UpgradeMarksRemoved"
)

// Recorder reports what happens to DaemonSets, in the log and in `kubectl describe`. It is
// safe for concurrent use.
//
// It writes core/v1 Events: the recorder for events.k8s.io folds Events of equal
// reason into the first one's message, and "3 of 5 pods" would never become "2 of
// 5".
type Recorder struct {
	events record.EventRecorder
	log    *slog.Logger
}

// Reported is what was last reported about a DaemonSet: the problem with what it asks for,
// pods that could not be marked, and the sum of the marks. Each is "" when there is nothing
// to report.
type Reported struct {
	problem  string
	unmarked string
	summary  string
}

// NewRecorder returns a recorder that runs until ctx is done, and drops what is not
// written by then. component is the source that Events name.
func NewRecorder(ctx context.Context, client typedcorev1.EventsGetter, component string, log *slog.Logger) *Recorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	return &Recorder{events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component}), log: log}
}

func (r *Recorder) normal(ds *appsv1.DaemonSet, reason, message string) {
	r.events.Event(ds, corev1.EventTypeNormal, reason, truncated(message))
}

func (r *Recorder) warning(ds *appsv1.DaemonSet, reason, message string) {
	r.events.Event(ds, corev1.EventTypeWarning, reason, truncated(message))
}

func (r *Recorder) logFor(ds *appsv1.DaemonSet) *slog.Logger {
	return r.log.With("daemonset", ds.Namespace+"/"+ds.Name)
}

// Problem reports what is wrong with what ds asks for; "" is nothing.
func (r *Recorder) Problem(ds *appsv1.DaemonSet, last *Reported, problem string) {
	if problem != "" && problem != last.problem {
		r.logFor(ds).Warn("DaemonSet asks for an update strategy that cannot be carried out", "problem", problem)
		r.warning(ds, reasonInvalidStrategy, problem)
	}
	last.problem = problem
}

// Marked sums up what a reconcile did to the pods. waiting is true if patches that failed
// have yet to be tried again.
func (r *Recorder) Marked(ds *appsv1.DaemonSet, last *Reported, revision string, p status.MarkPlan, done podclient.PatchResult, waiting bool) {
	r.patchFailure(ds, last, done, waiting)
	if len(done.Changed) == 0 {
		return
	}
	reason := status.ReasonUpToDate
	summary := "every pod runs controllerrevision " + revision
	if p.Need > 0 {
		reason = status.ReasonUpgradeAvailable
		summary = fmt.Sprintf("%d of %d pods need an upgrade to controllerrevision %s; each starts when its node is told to upgrade it",
			p.Need, p.Total, revision)
	}
	if p.Blocked > 0 {
		summary += fmt.Sprintf(", which %d refuse, since they would get no pod of it; kubectl edgehub status says why", p.Blocked)
	}
	r.logFor(ds).Info("pods marked", "revision", revision, "needUpgrade", p.Need, "blocked", p.Blocked, "pods", p.Total, "changed", len(done.Changed))
	if summary != last.summary {
		r.normal(ds, reason, summary)
		last.summary = summary
	}
}

// RolloutMarked posts an Event only if something failed: Rollout reports that a rollout began
// with its images. waiting is as for Marked.
func (r *Recorder) RolloutMarked(ds *appsv1.DaemonSet, last *Reported, revision string, done podclient.PatchResult, waiting bool) {
	r.patchFailure(ds, last, done, waiting)
	if len(done.Changed) > 0 {
		r.logFor(ds).Info("pods have other annotations for their nodes: which images to pull, and what owners may do",
			"revision", revision, "changed", len(done.Changed))
	}
}

// patchFailure does not report conflicts: the next try, at once, resolves them.
func (r *Recorder) patchFailure(ds *appsv1.DaemonSet, last *Reported, done podclient.PatchResult, waiting bool) {
	failure := ""
	if done.Failed > 0 {
		failure = done.Err().Error() + "; it is tried again"
	}
	if failure == "" && waiting {
		return
	}
	if failure != "" && failure != last.unmarked {
		r.logFor(ds).Warn("pods could not be marked", "problem", failure)
		r.warning(ds, reasonMarkingFailed, failure)
	}
	last.unmarked = failure
}

// Unmarked reports that the marks were removed from pods. rollout is true if the marks were
// those of a rollout.
func (r *Recorder) Unmarked(ds *appsv1.DaemonSet, last *Reported, pods int, rollout bool) {
	last.summary, last.unmarked = "", ""
	if pods == 0 {
		return
	}
	r.logFor(ds).Info("marks taken off pods: the DaemonSet no longer asks for them", "pods", pods)
	message := "the DaemonSet no longer asks for OTA: %d pods no longer say whether they need an upgrade"
	if rollout {
		message = "the DaemonSet no longer asks for an update strategy: %d pods no longer have their nodes pull images, or a policy for their owners"
	}
	r.normal(ds, reasonOptedOut, fmt.Sprintf(message, pods))
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
