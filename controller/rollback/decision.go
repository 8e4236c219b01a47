package rollback

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Reasons of api.RolledBackCondition. All but the first are those of a refusal, as are those of api.ReconciledCondition.
const (
	ReasonRolledBack = "RolledBackByOwner" // also of PodNeedUpgrade of the same pod

	// ReasonNewerRevision is also that of a rollback that has ended.
	ReasonNewerRevision   = "NewerRevision"
	ReasonNotPermitted    = "NotPermitted"
	ReasonUnknownRevision = "UnknownRevision"
	ReasonNotInPlace      = "NotInPlace"  // not only images would change
	ReasonNotAdmitted     = "NotAdmitted" // admission refuses a pod of that revision
	ReasonInvalid         = "InvalidAnnotation"
)

// Decision is what becomes of an owner's wish for an earlier revision. The zero value is no wish.
type Decision struct {
	// Revision is the earlier revision if the wish is granted.
	Revision string
	// Reason and Message are why it is not.
	Reason, Message string
}

// Done reports whether pod is of the earlier revision because its owner wants it.
func (d Decision) Done(pod *corev1.Pod) bool {
	return d.Revision != "" && revisionOf(pod) == d.Revision
}

// Decide returns what becomes of the wish of pod's owner. A rollback ends with a newer revision than
// that from which the owner went back.
func (r *Revisions) Decide(pod *corev1.Pod, policy api.Policy) Decision {
	if _, ok := pod.Annotations[api.RollbackAnnotation]; !ok {
		return Decision{} // for each pod of each plan, so without an allocation
	}
	wish, _, err := api.RollbackOf(pod)
	refused := func(reason, format string, args ...any) Decision {
		return Decision{Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	if err != nil {
		return refused(ReasonInvalid, "annotation %s is invalid: the node's hub writes it", api.RollbackAnnotation)
	}
	earlier, newest := r.history()[wish.Revision], r.history()[r.newest]
	switch {
	case wish.From != r.newest:
		return refused(ReasonNewerRevision, "the rollback is from another revision than controllerrevision %s, which is the newest: with a newer revision, a rollback ends", r.newest)
	case !policy.Rollback:
		return refused(ReasonNotPermitted, "owners may not roll back this workload: an admin can set its annotation %s to %s, or roll out an earlier version",
			api.OwnerRollbackAnnotation, api.RollbackAllowed)
	case earlier == nil || newest == nil || earlier.object.Revision >= newest.object.Revision:
		return refused(ReasonUnknownRevision, "controllerrevision %q is no earlier one of the history: an admin can raise revisionHistoryLimit, or roll out that version again",
			daemonset.Truncate(wish.Revision, maxQuoted))
	}
	granted := Decision{Revision: wish.Revision}
	if granted.Done(pod) {
		return granted
	}
	a, _ := r.admissionOf(pod)
	if a.Refused {
		return refused(ReasonNotAdmitted, "the apiserver refuses the earlier version: %s: an admin can change what refuses it, or that version", a.Why)
	}
	if _, problem := r.changes(pod, wish.Revision, a); problem != "" {
		return refused(ReasonNotInPlace, moreThanImages, problem)
	}
	return granted
}

const moreThanImages = "not only images would change: %s: an admin can roll out the earlier version for all nodes, with kubectl rollout undo"

// sidecarsSince is the version of kubelet from which on a native sidecar whose image changes is restarted in place.
var sidecarsSince = version.MustParseGeneric("1.32")

// RestartsSidecars reports whether the kubelet of a node does so.
func RestartsSidecars(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	v, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
	return err == nil && v.AtLeast(sidecarsSince)
}

// Granted returns a function that reports whether the owner of an old pod wants the earlier revision that it
// has or is about to get.
func (r *Revisions) Granted(policy api.Policy) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return r.Decide(pod, policy).Revision != "" }
}

// maxQuoted is more than a hash has, which is 10 characters.
const maxQuoted = 63

// templateGeneration is a label of pods. Only k8s.io/api/extensions has a constant for it.
const templateGeneration = "pod-template-generation"

// Patch returns the strategic merge patch that gives pod the images and the hash of the revision that its
// owner wants; nil if pod has them, or the wish is not granted, or Answer has yet to be called for it. The patch applies to the pod as it is, and to
// no other: an owner who upgrades meanwhile is not rolled back.
//
// It removes the label pod-template-generation, by which the DaemonSet controller would count a pod
// of an earlier revision as updated (IsPodUpdated in its package util). The label with the hash is
// enough for it.
func (r *Revisions) Patch(pod *corev1.Pod, policy api.Policy) []byte {
	d := r.Decide(pod, policy)
	a, asked := r.admissionOf(pod)
	if d.Revision == "" || d.Done(pod) || !asked || !pod.DeletionTimestamp.IsZero() {
		return nil
	}
	spec, _ := r.changes(pod, d.Revision, a) // granted: only images differ
	return patchTo(d.Revision, pod, pod.ResourceVersion, spec)
}

// patchTo returns the patch that gives pod the label of a revision and images; version, if it is not "", has it apply to that version
// of the pod only.
func patchTo(revision string, pod *corev1.Pod, version string, spec changes) []byte {
	var patch struct {
		Metadata struct {
			UID             types.UID          `json:"uid"`
			ResourceVersion string             `json:"resourceVersion,omitempty"`
			Labels          map[string]*string `json:"labels"`
		} `json:"metadata"`
		Spec changes `json:"spec"`
	}
	patch.Metadata.UID, patch.Metadata.ResourceVersion = pod.UID, version
	patch.Metadata.Labels = map[string]*string{appsv1.ControllerRevisionHashLabelKey: &revision, templateGeneration: nil}
	patch.Spec = spec
	b, err := json.Marshal(patch)
	if err != nil {
		panic("rollback: encode patch: " + err.Error()) // only strings
	}
	return b
}
