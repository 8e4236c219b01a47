package status

import (
	"encoding/json"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/edgehub-io/edgehub/controller/rollback"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Reasons of the condition PodNeedUpgrade, and of the Events that sum it up.
const (
	ReasonUpgradeAvailable = "UpgradeAvailable"
	ReasonUpgradeBlocked   = rollout.ReasonUpgradeBlocked
	ReasonUpToDate         = "UpToDate"
)

// Mark is what the controller writes on a pod: the condition PodNeedUpgrade, which lets
// the owner of the node upgrade it, the annotation with the target, and the one with the
// policy. A pod that the controller itself replaces gets no condition, and a target only if
// the node is to have the images first. The zero value is a pod with nothing of it.
type Mark struct {
	podCondition              // PodNeedUpgrade
	rolledBack   podCondition // PodRolledBack, of pods whose owners want an earlier revision
	reconciled   podCondition // PodOfflineUpgradeReconciled, of pods that cannot be given what they run
	// Target and Policy are the annotations' values, "" for no annotation.
	Target string
	Policy string
}

// podCondition is a condition of a pod without its type and times. The zero value is no condition.
type podCondition struct {
	status  corev1.ConditionStatus
	reason  string
	message string
}

func conditionOf(pod *corev1.Pod, t corev1.PodConditionType) podCondition {
	c := api.Condition(pod, t)
	if c == nil {
		return podCondition{}
	}
	return podCondition{c.Status, c.Reason, c.Message}
}

// MarkOf returns the mark that pod has now.
func MarkOf(pod *corev1.Pod) Mark {
	return Mark{
		podCondition: conditionOf(pod, api.NeedCondition), rolledBack: conditionOf(pod, api.RolledBackCondition),
		reconciled: conditionOf(pod, api.ReconciledCondition),
		Target:     pod.Annotations[api.TargetAnnotation], Policy: pod.Annotations[api.PolicyAnnotation],
	}
}

// PatchMark returns the patch that gives pod the mark want, nil if it has it.
func PatchMark(want Mark, pod *corev1.Pod, now time.Time) []byte {
	have := MarkOf(pod)
	if have == want {
		return nil
	}
	var p statusPatch
	p.Metadata.UID = pod.UID
	p.annotate(api.TargetAnnotation, have.Target, want.Target)
	p.annotate(api.PolicyAnnotation, have.Policy, want.Policy)
	p.setCondition(api.NeedCondition, have.podCondition, want.podCondition, now)
	p.setCondition(api.RolledBackCondition, have.rolledBack, want.rolledBack, now)
	p.setCondition(api.ReconciledCondition, have.reconciled, want.reconciled, now)
	if have.rolledBack != want.rolledBack {
		p.Metadata.ResourceVersion = pod.ResourceVersion // the answer is to this wish, not to one that replaces it meanwhile
	}
	return p.encode()
}

// Marker computes the marks that a DaemonSet's pods should have with the strategy OTA.
type Marker struct {
	revision string
	policy   func(*corev1.Pod) string // the annotation's value
	// decide returns what becomes of the wish of a pod's owner for an earlier revision.
	decide  func(*corev1.Pod) rollback.Decision
	since   func(*corev1.Pod) time.Time
	blocked func(*corev1.Pod) string
	// answers returns whether what blocked returns is an answer to a pod's question, and Target.Unknown of that answer.
	answers func(*corev1.Pod) (answers bool, unknown string)
	inPlace func(*corev1.Pod) InPlace
	// notReconciled returns reason and message of PodOfflineUpgradeReconciled, "" for none.
	notReconciled func(*corev1.Pod) (reason, message string)
	encode        func(variant) string
}

// NewMarker returns one for nodes that pull images when their owner asks for it. revisions are those of the
// DaemonSet. blocked returns Target.Blocked for a pod that needs an upgrade.
func NewMarker(t api.Target, policy api.Policy, revisions *rollback.Revisions, blocked func(*corev1.Pod) string) Marker {
	if policy.InPlace {
		policy.Newest = t.Number
	}
	return Marker{
		revision: t.Revision, policy: policyEncoder(policy, revisions), blocked: blocked,
		decide: func(pod *corev1.Pod) rollback.Decision { return revisions.Decide(pod, policy) },
		encode: targetEncoder(t),
		since:  func(*corev1.Pod) time.Time { return time.Time{} },
	}
}

// NewPrepullMarker returns one for nodes that pull images as soon as they are asked.
func NewPrepullMarker(t api.Target, policy api.Policy, revisions *rollback.Revisions, blocked func(*corev1.Pod) string, now time.Time) Marker {
	m, prepulls := NewMarker(t, policy, revisions, blocked), api.NewPrepulls(t.Revision)
	m.since = func(pod *corev1.Pod) time.Time { return prepulls.From(pod, now) }
	return m
}

// policyEncoder returns a function that encodes the policy of a pod, with the revisions that it can go back to. It encodes
// each once.
func policyEncoder(policy api.Policy, revisions *rollback.Revisions) func(*corev1.Pod) string {
	if !policy.Rollback || revisions == nil {
		encoded := policy.Encode()
		return func(*corev1.Pod) string { return encoded }
	}
	encoded := map[rollback.Origin]string{}
	return func(pod *corev1.Pod) string {
		origin := revisions.OriginOf(pod)
		out, ok := encoded[origin]
		if !ok {
			out = policy.EncodeWith(revisions.From(origin))
			encoded[origin] = out
		}
		return out
	}
}

// variant is what the targets of a DaemonSet's pods differ in.
type variant struct {
	since    int64 // Unix time since when the node is to pull the images; that of the zero time: it need not
	blocked  string
	answered string // Target.Answered
	unknown  string // Target.Unknown
	inPlace  string // an InPlace as JSON
}

// InPlace is whether a pod may be upgraded in place while the cloud is away. The zero value leaves that open.
type InPlace struct {
	Changes []api.ImageChange
	Why     string // it may not
}

// targetEncoder returns a function that encodes variants of t. It encodes each once: most pods of a DaemonSet share one
// of a few.
func targetEncoder(t api.Target) func(variant) string {
	encoded := map[variant]string{}
	return func(v variant) string {
		out, ok := encoded[v]
		if !ok {
			t.Prepull, t.Blocked, t.Answered, t.Unknown = nil, v.blocked, v.answered, v.unknown
			var inPlace InPlace
			if v.inPlace != "" {
				_ = json.Unmarshal([]byte(v.inPlace), &inPlace) // as encodeInPlace has written it
			}
			t.InPlace, t.NotInPlace = inPlace.Changes, inPlace.Why
			if v.since != (time.Time{}).Unix() {
				t.Prepull = &metav1.Time{Time: time.Unix(v.since, 0)}
			}
			out = t.Encode()
			encoded[v] = out
		}
		return out
	}
}

// markFor returns the mark that pod should have.
func (m Marker) markFor(pod *corev1.Pod) Mark {
	out := m.rolloutMark(pod)
	out.podCondition = podCondition{corev1.ConditionFalse, ReasonUpToDate, api.Message(m.revision)}
	if !m.needsUpgrade(pod) {
		return out
	}
	out.status, out.reason = corev1.ConditionTrue, ReasonUpgradeAvailable
	if m.rolledBack(pod) {
		out.reason = rollback.ReasonRolledBack
	}
	blocked := m.blocked(pod)
	if blocked != "" {
		out.reason = ReasonUpgradeBlocked
	}
	answered, unknown := m.answer(pod)
	out.Target = m.encode(variant{m.since(pod).Unix(), blocked, answered, unknown, m.encodeInPlace(pod)})
	return out
}

// InPlace returns m with inPlace, which returns whether a pod may be upgraded in place.
func (m Marker) InPlace(inPlace func(*corev1.Pod) InPlace) Marker {
	m.inPlace = inPlace
	return m
}

func (m Marker) encodeInPlace(pod *corev1.Pod) string {
	if m.inPlace == nil {
		return ""
	}
	v := m.inPlace(pod)
	if v.Why == "" && v.Changes == nil {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic("controller: encode images: " + err.Error()) // strings only
	}
	return string(b)
}

// Returning returns m with notReconciled, which returns why a pod that was upgraded while the cloud was away cannot be given what it
// runs: reason and message of PodOfflineUpgradeReconciled, "" for none.
func (m Marker) Returning(notReconciled func(*corev1.Pod) (reason, message string)) Marker {
	m.notReconciled = notReconciled
	return m
}

// Answering returns m with answers, which returns whether what m says of obstacles is an answer to the question of a pod, and
// what that leaves open. Without it, there are no answers yet.
func (m Marker) Answering(answers func(*corev1.Pod) (answers bool, unknown string)) Marker {
	m.answers = answers
	return m
}

// answer returns Target.Answered and Target.Unknown for pod.
func (m Marker) answer(pod *corev1.Pod) (answered, unknown string) {
	question := api.QuestionOf(pod)
	if question == "" {
		return "", ""
	}
	if m.answers != nil {
		if answers, unknown := m.answers(pod); answers {
			return question, unknown
		}
	}
	target, _, _ := api.TargetOf(pod) // of a target that is no target, there is no answer
	return target.Answered, target.Unknown
}

// rolloutMark is the mark of a pod that the controller itself replaces, without a target.
func (m Marker) rolloutMark(pod *corev1.Pod) Mark {
	out := Mark{Policy: m.policy(pod)}
	if m.notReconciled != nil {
		if reason, message := m.notReconciled(pod); reason != "" {
			out.reconciled = podCondition{corev1.ConditionFalse, reason, message}
		}
	}
	_, reports := pod.Annotations[api.UpgradedOfflineAnnotation]
	d := m.decide(pod)
	switch done := d.Done(pod); {
	case done && out.reconciled.reason != "": // it is of the earlier revision in the cloud alone
		out.rolledBack = podCondition{corev1.ConditionFalse, out.reconciled.reason, "it runs a later revision since it was upgraded while the cloud was away: " + out.reconciled.message}
	case done && reports:
		out.rolledBack = conditionOf(pod, api.RolledBackCondition) // it is about to become one of what it runs
	case done:
		out.rolledBack = podCondition{corev1.ConditionTrue, rollback.ReasonRolledBack, api.Message(d.Revision)}
	case d.Reason != "":
		out.rolledBack = podCondition{corev1.ConditionFalse, d.Reason, d.Message}
	}
	return out
}

// rolledBack reports whether pod is of an earlier revision because its owner wants it.
func (m Marker) rolledBack(pod *corev1.Pod) bool { return m.decide(pod).Done(pod) }

// needsUpgrade reports whether pod runs another revision than the target. A pod
// without a revision counts as old.
func (m Marker) needsUpgrade(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.ControllerRevisionHashLabelKey] != m.revision
}

// PodPatch is a patch of a pod's status, or with Spec of the pod itself.
type PodPatch struct {
	Pod   *corev1.Pod
	Patch []byte
	Spec  bool
}

// MarkPlan has the patches that give the pods of a DaemonSet their marks.
type MarkPlan struct {
	Patches []PodPatch
	// Need of Total pods need an upgrade, Blocked of which would not come back. RolledBack others are of an
	// earlier revision because their owners want it.
	Need, Total, Blocked, RolledBack int
}

// UpToDate is how many pods are of the target.
func (p *MarkPlan) UpToDate() int { return p.Total - p.Need - p.RolledBack }

// PlanMarks returns the patches that give each pod its mark.
func PlanMarks(m Marker, pods []*corev1.Pod, now time.Time) MarkPlan {
	p := MarkPlan{Total: len(pods)}
	for _, pod := range pods {
		mark := m.markFor(pod)
		switch {
		case m.rolledBack(pod):
			p.RolledBack++
		case m.needsUpgrade(pod):
			p.Need++
			if mark.reason == ReasonUpgradeBlocked {
				p.Blocked++
			}
		}
		if patch := PatchMark(mark, pod, now); patch != nil {
			p.Patches = append(p.Patches, PodPatch{Pod: pod, Patch: patch})
		}
	}
	return p
}

// RolloutPatches returns the patches that give pods the policy, and that have those in
// plan.Pulls, and no others, ask their nodes to pull the target's images. Owners who went back to
// an earlier revision can upgrade their pods, as with OTA. It leaves alone pods that are being
// deleted, and pods whose deletion failed: the next step decides about those.
func RolloutPatches(m Marker, plan *rollout.Plan, pods []*corev1.Pod, deleted func(types.UID) bool, now time.Time) []PodPatch {
	var patches []PodPatch
	tried := sets.Set[types.UID]{}
	for _, d := range plan.Delete {
		tried.Insert(d.Pod.UID)
	}
	for _, pod := range pods {
		if !pod.DeletionTimestamp.IsZero() || deleted(pod.UID) || tried.Has(pod.UID) {
			continue
		}
		want := m.rolloutMark(pod)
		if m.rolledBack(pod) {
			want = m.markFor(pod)
		} else if since, ok := plan.Pulls[pod.UID]; ok {
			want.Target = m.encode(variant{since: since.Unix()})
		}
		if patch := PatchMark(want, pod, now); patch != nil {
			patches = append(patches, PodPatch{Pod: pod, Patch: patch})
		}
	}
	return patches
}
