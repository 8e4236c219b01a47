package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// podPatch is a pod and the patch it is to get.
type podPatch struct {
	pod   *corev1.Pod
	patch []byte
}

// markPlan is what is to be done with the pods of a DaemonSet.
type markPlan struct {
	changes []podPatch
	// need of total pods need an upgrade.
	need, total int
}

// planMarks returns the patches that give each pod its mark.
func planMarks(m marker, pods []*corev1.Pod, now time.Time) markPlan {
	p := markPlan{total: len(pods)}
	for _, pod := range pods {
		if m.needsUpgrade(pod) {
			p.need++
		}
		if patch := markPatch(m.markFor(pod), pod, now); patch != nil {
			p.changes = append(p.changes, podPatch{pod: pod, patch: patch})
		}
	}
	return p
}
