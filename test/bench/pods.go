package main

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	namespace = "bench"
	podCount  = 5000
	// padding brings a pod to some 5.8 KB of protobuf, a usual size for a pod
	// with a few volumes, probes and conditions.
	padding = 4800
)

func podName(i int) string { return fmt.Sprintf("pod-%04d", i) }

// createPods makes pods that nobody schedules or runs.
func createPods(ctx context.Context, client kubernetes.Interface) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range podCount {
		g.Go(func() error {
			_, err := client.CoreV1().Pods(namespace).Create(ctx, newPod(i), metav1.CreateOptions{})
			return err
		})
	}
	return g.Wait()
}

func newPod(i int) *corev1.Pod {
	no := false
	labels := map[string]string{"app": fmt.Sprintf("app-%d", i%50)}
	if i < watchedPods {
		labels["watched"] = "true"
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(i), Labels: labels, Annotations: map[string]string{"padding": strings.Repeat("0123456789abcdef", padding/16)}},
		Spec: corev1.PodSpec{
			SchedulerName:                "nobody",
			AutomountServiceAccountToken: &no,
			ServiceAccountName:           "default",
			Containers: []corev1.Container{{
				Name: "app", Image: "example.org/app:v1",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
			}},
		},
	}
}
