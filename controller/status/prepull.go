package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

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
