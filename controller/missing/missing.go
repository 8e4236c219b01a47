// Package missing records in an annotation of each Node which of its pods Kubernetes has not created or scheduled, and
// why.
package missing

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Settle is for how long after the start nothing is taken back: not every workload has been looked at yet.
const Settle = time.Minute

// nodes are all nodes of the cluster.
type nodes interface {
	Synced() bool
	List() []*corev1.Node
}

// Reporter writes the annotations. It is safe for concurrent use.
type Reporter struct {
	client kubernetes.Interface
	nodes  nodes
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[string] // names of nodes

	mu      sync.Mutex
	missing map[string]map[types.UID]api.MissingWorkload // by node, and by workload; guarded by mu
	settled bool                                         // guarded by mu
}

// New returns a Reporter that Run has to run.
func New(client kubernetes.Interface, nodes nodes, log *slog.Logger) *Reporter {
	return &Reporter{
		client: client, nodes: nodes, log: log, missing: map[string]map[types.UID]api.MissingWorkload{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 5*time.Minute)),
	}
}

// Set replaces what nodes lack of a workload, by their names. It does not block.
func (r *Reporter) Set(workload types.UID, by map[string]api.MissingWorkload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for node, all := range r.missing {
		_, was := all[workload]
		if _, is := by[node]; !was || is {
			continue
		}
		if delete(all, workload); len(all) == 0 {
			delete(r.missing, node)
		}
		r.queue.Add(node)
	}
	for node, m := range by {
		if r.missing[node] == nil {
			r.missing[node] = map[types.UID]api.MissingWorkload{}
		}
		if r.missing[node][workload] != m {
			r.missing[node][workload] = m
			r.queue.Add(node)
		}
	}
}

// Run writes annotations until ctx ends. Entries from before a restart of the controller that no reconcile has confirmed
// are removed after Settle.
func (r *Reporter) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer r.queue.ShutDown()
	running.Go(func() { r.work(ctx) })
	settled := time.NewTimer(Settle)
	defer settled.Stop()
	select {
	case <-ctx.Done():
		return
	case <-settled.C:
	}
	r.mu.Lock()
	r.settled = true
	r.mu.Unlock()
	if r.nodes.Synced() { // else no workload has opted in
		r.queueAnnotated()
	}
	<-ctx.Done()
}

// queueAnnotated queues all Nodes with the annotation.
func (r *Reporter) queueAnnotated() {
	for _, node := range r.nodes.List() {
		if _, ok := node.Annotations[api.MissingAnnotation]; ok {
			r.queue.Add(node.Name)
		}
	}
}

func (r *Reporter) work(ctx context.Context) {
	for {
		name, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		if err := r.write(ctx, name); err != nil && ctx.Err() == nil {
			r.log.Warn("the annotation of a Node with its missing pods could not be written; it is tried again", "node", name, "err", err)
			r.queue.AddRateLimited(name)
		} else {
			r.queue.Forget(name)
		}
		r.queue.Done(name)
	}
}

// wanted returns the annotation of a node, and false if it is not known yet.
func (r *Reporter) wanted(name string) (annotation string, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []api.MissingWorkload
	for _, m := range r.missing[name] {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b api.MissingWorkload) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return api.EncodeMissing(list), r.settled || len(list) > 0
}

func (r *Reporter) write(ctx context.Context, name string) error {
	want, known := r.wanted(name)
	if !known {
		return nil // Run looks at it again
	}
	value := &want
	if want == "" {
		value = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{api.MissingAnnotation: value}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, podclient.Timeout)
	defer cancel()
	_, err = r.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "edgehub-controller"}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
