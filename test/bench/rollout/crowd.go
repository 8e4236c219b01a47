package main

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	otherNamespaces = 10
	// neighbours is the share of the others' pods that are in the namespace of
	// the DaemonSets: one in so many.
	neighbours = 10
	// padding brings a pod of others to some 3 KB.
	padding = 2000
	// nodeImages is how many images a node has; a kubelet reports up to 50.
	nodeImages = 25
)

// grow adds nodes, pods of others and pods of the DaemonSets.
func (w *world) grow(ctx context.Context, nodes int) error {
	if w.nodes == 0 {
		if err := w.makeNamespaces(ctx); err != nil {
			return fmt.Errorf("make namespaces: %w", err)
		}
	}
	err := each(ctx, w.nodes, nodes, func(ctx context.Context, i int) error {
		return w.fleet.AddNode(ctx, nodeName(i), map[string]string{corev1.LabelHostname: nodeName(i)})
	})
	if err != nil {
		return fmt.Errorf("make nodes: %w", err)
	}
	w.logf("%d nodes are there", nodes)
	largest := w.options.nodes[len(w.options.nodes)-1]
	others := w.options.otherPods * nodes / largest
	err = each(ctx, w.others, others, func(ctx context.Context, i int) error {
		pod := otherPod(i, nodes)
		_, err := w.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("make pods of others: %w", err)
	}
	w.logf("%d pods of others are there", others)
	if w.nodes == 0 {
		if err := w.makeDaemonSets(ctx); err != nil {
			return fmt.Errorf("make DaemonSets: %w", err)
		}
	}
	w.nodes, w.others = nodes, others
	if err := w.awaitPods(ctx); err != nil {
		return err
	}
	w.logf("%d pods of DaemonSets are Ready", daemonSets*nodes)
	return nil
}

// each calls do with from to n-1, some at once.
func each(ctx context.Context, from, n int, do func(context.Context, int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := from; i < n; i++ {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// dress gives a node what makes up most of a real one.
func dress(node *corev1.Node) {
	node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("4")
	node.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("8Gi")
	for i := range nodeImages {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{
				fmt.Sprintf("example.org/library/app-%d@sha256:%s", i, strings.Repeat("0123456789abcdef", 4)),
				fmt.Sprintf("example.org/library/app-%d:v1.0.%d", i, i),
			},
			SizeBytes: 50e6,
		})
	}
}

func (w *world) makeNamespaces(ctx context.Context) error {
	names := []string{namespace}
	for i := range otherNamespaces {
		names = append(names, otherNamespace(i))
	}
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := w.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
		// Without it no pod is admitted.
		err := await(ctx, "namespace "+name+" has its ServiceAccount", func() (int, error) {
			_, err := w.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return 1, nil
			}
			return 0, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func otherNamespace(i int) string { return fmt.Sprintf("other-%d", i%otherNamespaces) }

// otherPod is bound to a node, where nothing runs it.
func otherPod(i, nodes int) *corev1.Pod {
	in := otherNamespace(i)
	if i%neighbours == 0 {
		in = namespace
	}
	no := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in, Name: fmt.Sprintf("other-%05d", i),
			Labels:      map[string]string{"app": fmt.Sprintf("other-%d", i%50)},
			Annotations: map[string]string{"padding": strings.Repeat("0123456789abcdef", padding/16)},
		},
		Spec: corev1.PodSpec{
			NodeName:                     nodeName(i % nodes),
			AutomountServiceAccountToken: &no,
			Containers:                   []corev1.Container{{Name: "app", Image: "example.org/other:v1"}},
		},
	}
}
