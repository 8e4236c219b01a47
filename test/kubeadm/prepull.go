package kubeadm

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// prepull has the hub, in its unit, find out where containerd's own configuration leads: to a config_path that
// only an imported file names.
func (c *Cluster) prepull(ctx context.Context, say Say) error {
	pods, err := c.pods(ctx)
	if err != nil {
		return err
	}
	pod, err := podOf(pods, "web")
	if err != nil {
		return err
	}
	// The control plane's scheduler: no pod of edge has pulled it.
	target := api.NewTarget("next", &corev1.PodSpec{Containers: []corev1.Container{
		{Name: "web", Image: c.registry.Reference("kube-scheduler", c.tags["kube-scheduler"])},
	}})
	if err := c.mark(ctx, pod, target.Encode(), corev1.ConditionTrue); err != nil {
		return err
	}
	name := pod.Namespace + "/" + pod.Name
	if err := c.eventually(ctx, say, "edgehubctl pull "+name+": the image is there, from where containerd's imported configuration leads", func(ctx context.Context) error {
		_, err := c.machines[edge].Run(ctx, "/root/edgehubctl", "pull", "--timeout=30s", name)
		return err
	}); err != nil {
		return err
	}
	if _, err := c.machines[edge].Run(ctx, "/root/edgehubctl", "pull", "--cancel", name); err != nil {
		return err
	}
	return c.mark(ctx, pod, nil, corev1.ConditionFalse)
}

// mark has a pod need an upgrade, or no more, as edgehub-controller does. target is nil, or one that is encoded.
func (c *Cluster) mark(ctx context.Context, pod *corev1.Pod, target any, needs corev1.ConditionStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{api.TargetAnnotation: target}},
		"status":   map[string]any{"conditions": []corev1.PodCondition{{Type: api.NeedCondition, Status: needs, Message: api.Message("next")}}},
	})
	if err == nil {
		_, err = c.controller.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	return err
}
