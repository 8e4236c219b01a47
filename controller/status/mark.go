package status

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Reasons of the condition PodNeedUpgrade, and of the Events that sum it up.
const (
	ReasonUpgradeAvailable = "UpgradeAvailable"
	ReasonUpToDate         = "UpToDate"
)

// Mark is what the controller writes on a pod: the condition PodNeedUpgrade, which lets
// the owner of the node upgrade it, and the annotation with the target. A pod that the
// controller itself replaces once the node has the images gets the annotation alone. The
// zero value is a pod with neither.
type Mark struct {
	status  corev1.ConditionStatus
	reason  string
	message string
	// Target is the annotation's value, "" for no annotation.
	Target string
}

// MarkOf returns the mark that pod has now.
func MarkOf(pod *corev1.Pod) Mark {
	out := Mark{Target: pod.Annotations[upgrade.TargetAnnotation]}
	if c := upgrade.Condition(pod, upgrade.NeedCondition); c != nil {
		out.status, out.reason, out.message = c.Status, c.Reason, c.Message
	}
	return out
}

// PatchMark returns the patch that gives pod the mark want, nil if it has it.
func PatchMark(want Mark, pod *corev1.Pod, now time.Time) []byte {
	have := MarkOf(pod)
	if have == want {
		return nil
	}
	var p statusPatch
	p.Metadata.UID = pod.UID
	if have.Target != want.Target {
		p.Metadata.Annotations = map[string]*string{upgrade.TargetAnnotation: nil}
		if want.Target != "" {
			p.Metadata.Annotations[upgrade.TargetAnnotation] = &want.Target
		}
	}
	if have.Target = want.Target; have != want {
		p.Status.Conditions = []conditionPatch{
			patchCondition(string(upgrade.NeedCondition), have.status, want.status, want.reason, want.message, now),
		}
	}
	return p.encode()
}

// Marker computes the marks that a DaemonSet's pods should have with the strategy OTA.
type Marker struct {
	revision  string
	targetFor func(*corev1.Pod) string
}

// NewMarker returns one for nodes that pull images when their owner asks for it.
func NewMarker(t upgrade.Target) Marker {
	encoded := t.Encode()
	return Marker{revision: t.Revision, targetFor: func(*corev1.Pod) string { return encoded }}
}

// NewPrepullMarker returns one for nodes that pull images as soon as they are asked.
func NewPrepullMarker(t upgrade.Target, now time.Time) Marker {
	encode, prepulls := prepullEncoder(t), upgrade.NewPrepulls(t.Revision)
	return Marker{revision: t.Revision, targetFor: func(pod *corev1.Pod) string { return encode(prepulls.From(pod, now)) }}
}

// prepullEncoder returns a function that encodes t with the time since when nodes are to
// pull its images. It encodes each time once: most pods of a DaemonSet share one of a few.
func prepullEncoder(t upgrade.Target) func(since time.Time) string {
	encoded := map[int64]string{} // by Unix time
	return func(since time.Time) string {
		out, ok := encoded[since.Unix()]
		if !ok {
			t.Prepull = &metav1.Time{Time: since}
			out = t.Encode()
			encoded[since.Unix()] = out
		}
		return out
	}
}

// markFor returns the mark that pod should have.
func (m Marker) markFor(pod *corev1.Pod) Mark {
	out := Mark{status: corev1.ConditionFalse, reason: ReasonUpToDate, message: upgrade.Message(m.revision)}
	if m.needsUpgrade(pod) {
		out.status, out.reason, out.Target = corev1.ConditionTrue, ReasonUpgradeAvailable, m.targetFor(pod)
	}
	return out
}

// needsUpgrade reports whether pod runs another revision than the target. A pod
// without a revision counts as old.
func (m Marker) needsUpgrade(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.ControllerRevisionHashLabelKey] != m.revision
}

// PodPatch is a patch of a pod's status.
type PodPatch struct {
	Pod   *corev1.Pod
	Patch []byte
}

// MarkPlan has the patches that give the pods of a DaemonSet their marks.
type MarkPlan struct {
	Patches []PodPatch
	// Need of Total pods need an upgrade.
	Need, Total int
}

// PlanMarks returns the patches that give each pod its mark.
func PlanMarks(m Marker, pods []*corev1.Pod, now time.Time) MarkPlan {
	p := MarkPlan{Total: len(pods)}
	for _, pod := range pods {
		if m.needsUpgrade(pod) {
			p.Need++
		}
		if patch := PatchMark(m.markFor(pod), pod, now); patch != nil {
			p.Patches = append(p.Patches, PodPatch{Pod: pod, Patch: patch})
		}
	}
	return p
}

// PrepullPatches returns the patches that have the pods in plan.Pulls, and no others, ask
// their nodes to pull the target's images. It leaves alone pods that are being deleted, and
// pods whose deletion failed: the next step decides about those.
func PrepullPatches(target upgrade.Target, plan *rollout.Plan, pods []*corev1.Pod, deleted func(types.UID) bool, now time.Time) []PodPatch {
	var patches []PodPatch
	encode := prepullEncoder(target)
	tried := sets.Set[types.UID]{}
	for _, d := range plan.Delete {
		tried.Insert(d.Pod.UID)
	}
	for _, pod := range pods {
		if !pod.DeletionTimestamp.IsZero() || deleted(pod.UID) || tried.Has(pod.UID) {
			continue
		}
		var want Mark
		if since, ok := plan.Pulls[pod.UID]; ok {
			want.Target = encode(since)
		}
		if patch := PatchMark(want, pod, now); patch != nil {
			patches = append(patches, PodPatch{Pod: pod, Patch: patch})
		}
	}
	return patches
}
