package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWhatStartsAContainerAgain(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	never := corev1.ContainerRestartPolicyNever
	pod := func(meta metav1.ObjectMeta, policy corev1.RestartPolicy) *corev1.Pod {
		meta.Namespace = "shop"
		return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
			RestartPolicy:  policy,
			Containers:     []corev1.Container{{Name: "app"}, {Name: "once", RestartPolicy: &never}},
			InitContainers: []corev1.Container{{Name: "setup"}, {Name: "sidecar", RestartPolicy: &always}},
			EphemeralContainers: []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}},
			},
		}}
	}
	pods := []*corev1.Pod{
		pod(metav1.ObjectMeta{Name: "forged", UID: "forged", Annotations: map[string]string{mirrorUID: "job"}}, corev1.RestartPolicyAlways),
		pod(metav1.ObjectMeta{Name: "web", UID: "web"}, corev1.RestartPolicyAlways),
		pod(metav1.ObjectMeta{Name: "job", UID: "job"}, corev1.RestartPolicyNever),
		pod(metav1.ObjectMeta{Name: "static", UID: "mirror", Annotations: map[string]string{mirrorUID: "static"}}, corev1.RestartPolicyOnFailure),
	}
	tests := map[string]struct {
		uid  types.UID // its pod has the same name
		name string
		want corev1.RestartPolicy
		err  string
	}{
		"the pod's policy":                   {"web", "app", corev1.RestartPolicyAlways, ""},
		"Never, though a pod claims its UID": {"job", "app", corev1.RestartPolicyNever, ""},
		"an init container":                  {"job", "setup", corev1.RestartPolicyNever, ""},
		"the container's own, not the pod's": {"web", "once", corev1.RestartPolicyNever, ""},
		"a sidecar of a pod with Never":      {"job", "sidecar", corev1.RestartPolicyAlways, ""},
		"an ephemeral container":             {"web", "debugger", corev1.RestartPolicyNever, ""},
		"a static pod, by its mirror pod":    {"static", "app", corev1.RestartPolicyOnFailure, ""},
		"an earlier pod of the same name":    {"before", "app", "", "the hub does not know this pod"},
		"a container of nobody":              {"web", "else", "", "the hub knows no container else of this pod"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := policyOf(pods, types.NamespacedName{Namespace: "shop", Name: string(tt.uid)}, tt.uid, tt.name)
			if got != tt.want || (tt.err == "") != (err == nil) || err != nil && err.Error() != tt.err {
				t.Errorf("got %q, %v, want %q, %q", got, err, tt.want, tt.err)
			}
		})
	}
}
