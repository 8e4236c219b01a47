package condition

import (
	"context"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Cloud takes the patches.
type Cloud interface {
	// PatchStatus sends a strategic merge patch.
	PatchStatus(ctx context.Context, pod types.NamespacedName, patch []byte) error
}

// Queue is how far pre-pulls are.
type Queue interface {
	// StateOf returns false for a pod without a pre-pull.
	StateOf(pod types.UID) (nodeapi.ImagePull, bool)
	// Changed returns a channel that is closed at the next change, of pods too.
	Changed() <-chan struct{}
}

// Options is what New needs. All but Logger are required.
type Options struct {
	Cloud Cloud
	Queue Queue
	// Pods returns those of this node, as they were seen last. Nobody changes them.
	Pods func() map[types.UID]*corev1.Pod
	// Online reports whether the cloud can be reached.
	Online func() bool
	Logger *slog.Logger
}

// Reporter reports pre-pulls in the conditions of pods. Everything but Run may be called at any time, from
// several goroutines.
type Reporter struct {
	Options

	// mu is held while the pods are asked for, so that a pod that was
	// suppressed is not forgotten by a list without it.
	mu         sync.Mutex
	suppressed map[types.UID]string // revisions for which pods are to have no condition
	returned   bool                 // the cloud has, since the last report

	wake chan struct{} // one message is enough for several changes
}

// New returns a Reporter. It starts nothing.
func New(o Options) *Reporter {
	return &Reporter{Options: o, suppressed: map[types.UID]string{}, wake: make(chan struct{}, 1)}
}

// CloudReturned sends again what was sent before: it may not have arrived.
func (r *Reporter) CloudReturned() {
	r.mu.Lock()
	r.returned = true
	r.mu.Unlock()
	r.wakeUp()
}

// Suppress removes a pod's condition until its target changes. It reports whether the pod
// has one now that is ours. Call it before a pre-pull is cancelled.
func (r *Reporter) Suppress(name types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, pod := range r.Pods() {
		if pod.Namespace != name.Namespace || pod.Name != name.Name {
			continue
		}
		current, ours := currentOf(pod)
		if t, ok, err := upgrade.TargetOf(pod); ok && err == nil {
			r.suppressed[uid] = t.Revision
			r.wakeUp()
			return ours && current != (condition{})
		}
	}
	return false
}

// Unsuppress undoes Suppress.
func (r *Reporter) Unsuppress(pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.suppressed, pod)
}

func (r *Reporter) suppressedFor(pod types.UID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.suppressed[pod]
}

// takeReturned reports whether the cloud has returned since it was called last.
func (r *Reporter) takeReturned() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	returned := r.returned
	r.returned = false
	return returned
}

func (r *Reporter) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
