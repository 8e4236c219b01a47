package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

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
