package kubeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// everyProgram is how the names of the edge node's pods begin.
var everyProgram = []string{"coredns", "informer", "kube-flannel-ds", "kube-proxy", "proxied", "secret-token", "web"}

func (c *Cluster) nodeReady(ctx context.Context, name string) error {
	lease, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// kubelet renews it every 10 s. The cloud still says Ready of a node that it is about to give up.
	if at := lease.Spec.RenewTime; at == nil || time.Since(at.Time) > 20*time.Second {
		return fmt.Errorf("node %s has not renewed its lease since %v", name, at)
	}
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not Ready", name)
}

// pods are those of the edge node, in the cloud's eyes.
func (c *Cluster) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + edge})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// podsOffline are the same in the hub's eyes.
func (c *Cluster) podsOffline(ctx context.Context) ([]corev1.Pod, error) {
	text, err := c.get(ctx, "https://127.0.0.1:10268/api/v1/pods?fieldSelector=spec.nodeName%3D"+edge)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	err = json.Unmarshal([]byte(text), &list)
	return list.Items, err
}

func (c *Cluster) podsReady(ctx context.Context, names ...string) error {
	pods, err := c.pods(ctx)
	if err != nil {
		return err
	}
	return allReady(pods, time.Time{}, names)
}

// podsReadyOffline demands that the containers were started since the boot.
func (c *Cluster) podsReadyOffline(ctx context.Context, names ...string) error {
	pods, err := c.podsOffline(ctx)
	if err != nil {
		return err
	}
	return allReady(pods, c.booted, names)
}

// allReady returns an error unless there is one pod for each name, and all are Ready with
// containers that were started at a time or later.
func allReady(pods []corev1.Pod, started time.Time, names []string) error {
	for _, name := range names {
		pod, err := podOf(pods, name)
		if err != nil {
			return err
		}
		if !ready(pod, started) {
			return fmt.Errorf("pod %s is not Ready", pod.Name)
		}
	}
	return nil
}

// podOf returns the pod whose name begins with a word and a dash.
func podOf(pods []corev1.Pod, name string) (*corev1.Pod, error) {
	var found []*corev1.Pod
	for i := range pods {
		if strings.HasPrefix(pods[i].Name, name+"-") {
			found = append(found, &pods[i])
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("there are %d pods %s, and not 1", len(found), name)
	}
	return found[0], nil
}

func ready(pod *corev1.Pod, started time.Time) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Running == nil || s.State.Running.StartedAt.Time.Before(started) {
			return false
		}
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// containers are the running ones' ids, one pod a line.
func (c *Cluster) containers(ctx context.Context) (string, error) { return c.containerIDs(c.pods(ctx)) }

func (c *Cluster) containersOffline(ctx context.Context) (string, error) {
	return c.containerIDs(c.podsOffline(ctx))
}

// containerIDs leaves out kube-proxy on a node that has moved: it ends, and is started again, whenever it
// reads another address of its node, and the cloud has the old one until kubelet has reported.
func (c *Cluster) containerIDs(pods []corev1.Pod, err error) (string, error) {
	var lines []string
	for i := range pods {
		if c.options.Move && strings.HasPrefix(pods[i].Name, "kube-proxy-") {
			continue
		}
		for _, s := range pods[i].Status.ContainerStatuses {
			lines = append(lines, pods[i].Name+" "+s.ContainerID+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), err
}

// deletePods deletes the edge node's pods, whose owners make others.
func (c *Cluster) deletePods(ctx context.Context, say Say) error {
	pods, err := c.pods(ctx)
	if err != nil {
		return err
	}
	for i := range pods {
		if err := c.client.CoreV1().Pods(pods[i].Namespace).Delete(ctx, pods[i].Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return c.eventually(ctx, say, "edge's pods were deleted, and are gone", func(ctx context.Context) error {
		now, err := c.pods(ctx)
		for i := range now {
			if slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == now[i].UID }) {
				err = errors.Join(err, errors.New(now[i].Name+" is there"))
			}
		}
		return err
	})
}
