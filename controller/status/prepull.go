package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// PrepullPatches returns the patches that bring the pods' conditions in line with the plan. It
// leaves alone pods that are being deleted, and pods whose deletion failed: the next step
// determines the conditions of those.
func PrepullPatches(target upgrade.Target, plan *rollout.Plan, pods []*corev1.Pod, deleted func(types.UID) bool, now time.Time) []PodPatch {
	var changes []PodPatch
	dates := newPrepullTarget(target)
	tried := map[types.UID]bool{}
	for _, d := range plan.Delete {
		tried[d.Pod.UID] = true
	}
	for _, pod := range pods {
		if !pod.DeletionTimestamp.IsZero() || deleted(pod.UID) || tried[pod.UID] {
			continue
		}
		var want Mark
		if from, ok := plan.Pulls[pod.UID]; ok {
			want.Target = dates.encode(from)
		}
		if patch := PatchMark(want, pod, now); patch != nil {
			changes = append(changes, PodPatch{Pod: pod, Patch: patch})
		}
	}
	return changes
}
