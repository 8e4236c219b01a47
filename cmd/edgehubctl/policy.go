package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mirrorUID is the annotation in which the mirror pod of a static pod has the UID by which kubelet
// knows that (k8s.io/kubernetes/pkg/kubelet/types).
const mirrorUID = "kubernetes.io/config.mirror"

// policyOf returns by which policy kubelet starts a container of pod again, which it knows by uid.
func policyOf(pods []*corev1.Pod, pod types.NamespacedName, uid types.UID, name string) (corev1.RestartPolicy, error) {
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool {
		return p.Namespace == pod.Namespace && p.Name == pod.Name && (p.UID == uid || types.UID(p.Annotations[mirrorUID]) == uid)
	})
	if i < 0 {
		return "", errors.New("the hub does not know this pod")
	}
	spec := pods[i].Spec
	for _, c := range spec.EphemeralContainers { // kubelet starts these once
		if c.Name == name {
			return corev1.RestartPolicyNever, nil
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		switch {
		case c.Name != name:
		case c.RestartPolicy != nil:
			return corev1.RestartPolicy(*c.RestartPolicy), nil
		default:
			return cmp.Or(spec.RestartPolicy, corev1.RestartPolicyAlways), nil
		}
	}
	return "", fmt.Errorf("the hub knows no container %s of this pod", name)
}
