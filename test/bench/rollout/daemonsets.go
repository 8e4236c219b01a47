package main

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	namespace   = "bench"
	daemonSets  = 2
	daemonLabel = "bench=daemon"
	// maxUnavailable is our default, in the words of both strategies.
	maxUnavailable = "10%"
)

func daemonSetName(i int) string { return fmt.Sprintf("daemon-%d", i) }

func (w *world) makeDaemonSets(ctx context.Context) error {
	for i := range daemonSets {
		if _, err := w.client.AppsV1().DaemonSets(namespace).Create(ctx, newDaemonSet(i), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// newDaemonSet is one that is rolled out by nobody.
func newDaemonSet(i int) *appsv1.DaemonSet {
	labels := map[string]string{"bench": "daemon", "app": daemonSetName(i)}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: daemonSetName(i), Namespace: namespace}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	ds.Spec.Template.Labels = labels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "app", Image: "example.org/daemon:v0",
		Args: []string{"--node-name=$(NODE_NAME)", "--config=/etc/daemon/config.yaml"},
		Env: []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
	}}
	return ds
}

// useOurs has the DaemonSets rolled out by edgehub-controller.
func (w *world) useOurs(ctx context.Context) error {
	return w.patchAll(ctx, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{
			api.StrategyAnnotation:       daemonset.AdvancedRollingUpdate.String(),
			api.MaxUnavailableAnnotation: maxUnavailable,
		}},
		"spec": map[string]any{"updateStrategy": map[string]any{
			"type": appsv1.OnDeleteDaemonSetStrategyType, "rollingUpdate": nil,
		}},
	})
}

// useNative has them rolled out by the DaemonSet controller.
func (w *world) useNative(ctx context.Context) error {
	return w.patchAll(ctx, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{
			api.StrategyAnnotation: nil, api.MaxUnavailableAnnotation: nil,
		}},
		"spec": map[string]any{"updateStrategy": map[string]any{
			"type": appsv1.RollingUpdateDaemonSetStrategyType, "rollingUpdate": map[string]any{"maxUnavailable": maxUnavailable},
		}},
	})
}

// changeTemplate gives all of them a new image.
func (w *world) changeTemplate(ctx context.Context) error {
	w.images++
	return w.patchAll(ctx, map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "app", "image": fmt.Sprintf("example.org/daemon:v%d", w.images)}},
	}}}})
}

func (w *world) patchAll(ctx context.Context, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	for i := range daemonSets {
		_, err := w.client.AppsV1().DaemonSets(namespace).Patch(ctx, daemonSetName(i), types.StrategicMergePatchType, body, metav1.PatchOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitPods waits until every node has an available pod of the newest template, in
// the words of the DaemonSet controller, whoever rolls out.
func (w *world) awaitPods(ctx context.Context) error {
	return w.awaitAll(ctx, "each node has an available pod of each DaemonSet's newest template", func(ds *appsv1.DaemonSet) int {
		s := &ds.Status
		n := int32(w.nodes)
		return int(max(n-s.DesiredNumberScheduled, 0) + max(n-s.UpdatedNumberScheduled, 0) + max(n-s.NumberAvailable, 0))
	})
}

// awaitNoticed waits until the DaemonSet controller has seen the newest spec.
func (w *world) awaitNoticed(ctx context.Context) error {
	return w.awaitAll(ctx, "the DaemonSets are noticed", func(*appsv1.DaemonSet) int { return 0 })
}

// awaitAll waits until the DaemonSet controller has seen the newest spec of each
// DaemonSet, and nothing is left to be done for any.
func (w *world) awaitAll(ctx context.Context, what string, left func(*appsv1.DaemonSet) int) error {
	return await(ctx, what, func() (int, error) {
		sum := 0
		for i := range daemonSets {
			ds, err := w.client.AppsV1().DaemonSets(namespace).Get(ctx, daemonSetName(i), metav1.GetOptions{})
			if err != nil {
				return 0, err
			}
			if ds.Status.ObservedGeneration < ds.Generation {
				sum++
			}
			sum += left(ds)
		}
		return sum, nil
	})
}
