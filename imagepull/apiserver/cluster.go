// Package apiserver reads secrets, sets conditions of the Node, and records Events.
// Its requests go through the hub, so the cache answers them offline.
package apiserver

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
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

// SetNodeCondition sets a condition of the Node.
func (c *Cluster) SetNodeCondition(ctx context.Context, condition corev1.NodeCondition) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}})
	if err != nil {
		return err
	}
	return c.client.Patch(types.StrategicMergePatchType).Resource("nodes").Name(c.node).SubResource("status").
		Body(patch).MaxRetries(0).Do(ctx).Error()
}

// Event records an Event of a pod, or of the Node. It does not block.
func (c *Cluster) Event(about *corev1.ObjectReference, eventType, reason, message string) {
	c.recorder.Event(about, eventType, reason, message)
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
