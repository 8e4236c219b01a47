package tolerations

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/expectations"
	"github.com/edgehub-io/edgehub/controller/podclient"
)

// batch is what became of the pods of a node. Its methods are safe for concurrent use.
type batch struct {
	mu     sync.Mutex
	done   int
	failed int
	stay   int           // have, or get, seconds for it
	leave  int           // are evicted as they ask for themselves
	first  error         // with the pod's name
	again  time.Duration // when to look again; 0 if that takes a change
}

// waits has the node looked at again after d, or before.
func (b *batch) waits(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.again == 0 || d < b.again {
		b.again = d
	}
}

// add counts the answer to a patch. The watch brings the newer version after a conflict.
func (b *batch) add(pod *boundPod, err error) {
	if podclient.IsConflict(err) {
		b.waits(minRetry)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.done++
	case !apierrors.IsNotFound(err):
		b.failed++
		if b.first == nil {
			b.first = fmt.Errorf("pod %s/%s: %s", pod.Namespace, pod.Name, expectations.QuoteError(err))
		}
	}
}

// count counts a pod that is as it should be.
func (b *batch) count(pod *boundPod, s autonomy.Setting) {
	if autonomy.Stays(pod.whole(), s) {
		b.stay++
	} else {
		b.leave++
	}
}

func (b *batch) err() error {
	if b.first == nil {
		return nil
	}
	return fmt.Errorf("%d pods could not be changed, the first: %w", b.failed, b.first)
}

// patchPods takes the steps of a node's pods that are due.
func (c *Controller) patchPods(ctx context.Context, n *corev1.Node, s autonomy.Setting) *batch {
	b := &batch{}
	pods, _ := c.pods.GetIndexer().ByIndex(byNode, n.Name) // it fails without the index only
	var g errgroup.Group
	g.SetLimit(parallel)
	steps := 0
	for _, o := range pods {
		pod, ok := o.(*boundPod)
		if !ok {
			continue // it never needs a patch
		}
		step, err := c.fleet().Plan(pod.whole(), s, autonomy.Away(n))
		if step.Patch == nil && err == nil {
			b.count(pod, s)
			continue
		}
		steps, b.stay = steps+1, b.stay+1
		if wait := c.due(n.Name, step.After); wait > 0 {
			b.waits(wait)
			continue
		}
		g.Go(func() error {
			if err == nil {
				err = c.patchPod(ctx, pod, step.Patch)
			}
			b.add(pod, err)
			if step.More {
				b.waits(minRetry)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in b
	switch {
	case steps == 0:
		c.changed.Delete(n.Name)
	case b.done > 0 && autonomy.Away(n):
		c.changed.Store(n.Name, time.Now())
	}
	return b
}

// due returns how long a step has to wait still that is due so long after the last change of the node's pods.
func (c *Controller) due(node string, after time.Duration) time.Duration {
	if after == 0 {
		return 0
	}
	last, _ := c.changed.LoadOrStore(node, time.Now())
	return after - time.Since(last.(time.Time)) // all entries are times
}

func (c *Controller) patchPod(ctx context.Context, pod *boundPod, patch []byte) error {
	if err := c.limiter.Wait(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, podclient.Timeout)
	defer cancel()
	_, err := c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: c.Name})
	c.Metrics.patched(err)
	return err
}
