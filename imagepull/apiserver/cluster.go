// Package apiserver reads the node's pods and secrets, patches the pods' status, and records Events.
// Its requests go through the hub, so the cache answers them offline.
package apiserver

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Cluster implements imagepull.Cloud. It is safe for concurrent use. End it with Close.
type Cluster struct {
	client   rest.Interface
	node     string
	events   record.EventBroadcaster
	recorder record.EventRecorder
}

// requestTimeout bounds a request that the apiserver accepts and never answers.
const requestTimeout = 30 * time.Second

// NewCluster returns a Cluster for a node. client is for the core group, with the node's identity.
func NewCluster(client rest.Interface, node string) *Cluster {
	c := &Cluster{client: client, node: node, events: record.NewBroadcaster()}
	c.events.StartRecordingToSink(eventSink{client})
	c.recorder = c.events.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "edgehub", Host: node})
	return c
}

// Close drops Events that have not been sent.
func (c *Cluster) Close() { c.events.Shutdown() }

// Secret returns a secret.
func (c *Cluster) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s := &corev1.Secret{}
	err := c.client.Get().Namespace(namespace).Resource("secrets").Name(name).MaxRetries(0).Do(ctx).Into(s)
	return s, err
}

// PatchStatus applies a strategic merge patch to the status of a pod.
func (c *Cluster) PatchStatus(ctx context.Context, pod types.NamespacedName, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.client.Patch(types.StrategicMergePatchType).
		Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("status").
		Body(patch).MaxRetries(0).Do(ctx).Error()
}

// Event records an Event of a pod. It does not block.
func (c *Cluster) Event(pod *corev1.ObjectReference, eventType, reason, message string) {
	c.recorder.Event(pod, eventType, reason, message)
}

// settleTime collects the changes of pods that come together.
const settleTime = 100 * time.Millisecond

// Watch calls each with the node's pods, read-only, when they are known and after each change,
// until ctx ends. It makes the kubelet's query: a node may watch pods only by this selector, and
// the kubelet's watch keeps the cache's view of it up to date.
func (c *Cluster) Watch(ctx context.Context, each func([]*corev1.Pod)) {
	changed := make(chan struct{}, 1) // one message stands for any number of changes
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.client, "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", c.node)),
		ObjectType:    &corev1.Pod{},
		Transform:     trim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(_, _ any) { notify() }, DeleteFunc: func(any) { notify() },
		},
	})
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		notify() // there may be no pods at all
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			each(podsIn(store))
		}
		select {
		case <-ctx.Done():
		case <-time.After(settleTime):
		}
	}
}

func podsIn(store cache.Store) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range store.List() {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// trim keeps the fields of a pod that this package's users read.
func trim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, OwnerReferences: pod.OwnerReferences,
		},
		Spec: corev1.PodSpec{ImagePullSecrets: pod.Spec.ImagePullSecrets},
	}
	if hash, ok := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; ok {
		out.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
	}
	if target, ok := pod.Annotations[upgrade.TargetAnnotation]; ok {
		out.Annotations = map[string]string{upgrade.TargetAnnotation: target}
	}
	if image := upgrade.Condition(pod, upgrade.ImageCondition); image != nil {
		out.Status.Conditions = []corev1.PodCondition{*image}
	}
	statuses := pod.Status.ContainerStatuses
	for i := range statuses {
		out.Status.ContainerStatuses = append(out.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: statuses[i].Name, ContainerID: statuses[i].ContainerID,
		})
	}
	return out, nil
}

// eventSink writes Events with a client that knows only the core group.
type eventSink struct{ client rest.Interface }

func (s eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.send(s.client.Post(), e.Namespace, "", e)
}

func (s eventSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.send(s.client.Put(), e.Namespace, e.Name, e)
}

func (s eventSink) Patch(old *corev1.Event, patch []byte) (*corev1.Event, error) {
	return s.send(s.client.Patch(types.StrategicMergePatchType), old.Namespace, old.Name, patch)
}

func (s eventSink) send(r *rest.Request, namespace, name string, body any) (*corev1.Event, error) {
	if name != "" {
		r = r.Name(name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	out := &corev1.Event{}
	err := r.Namespace(namespace).Resource("events").Body(body).MaxRetries(0).Do(ctx).Into(out)
	return out, err
}
