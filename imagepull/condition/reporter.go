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

// Cloud takes what is said of pods.
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

// Reporter tells pods of their images. Everything but Run may be called at any time, from
// several goroutines.
type Reporter struct {
	Options

	// mu is held while the pods are asked for, so that what was dismissed of a pod is not
	// forgotten by who has not seen that pod yet.
	mu        sync.Mutex
	dismissed map[types.UID]string // revisions that pods are to say nothing of
	returned  bool                 // the cloud has, since what was said last

	wake chan struct{} // one message says all
}

// New returns a Reporter. It starts nothing.
func New(o Options) *Reporter {
	return &Reporter{Options: o, dismissed: map[types.UID]string{}, wake: make(chan struct{}, 1)}
}

// CloudReturned has pods told again what was said before: it may not have arrived.
func (r *Reporter) CloudReturned() {
	r.mu.Lock()
	r.returned = true
	r.mu.Unlock()
	r.wakeUp()
}

// Dismiss has a pod say nothing of images until its target changes. It reports whether
// it says anything now that is ours. Where a pre-pull is cancelled, Dismiss comes first.
func (r *Reporter) Dismiss(name types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, pod := range r.Pods() {
		if pod.Namespace != name.Namespace || pod.Name != name.Name {
			continue
		}
		have, ours := saidBy(pod)
		if t, ok, err := upgrade.TargetOf(pod); ok && err == nil {
			r.dismissed[uid] = t.Revision
			r.wakeUp()
			return ours && have != (saying{})
		}
	}
	return false
}

// Allow takes back Dismiss.
func (r *Reporter) Allow(pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.dismissed, pod)
}

func (r *Reporter) dismissedFor(pod types.UID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dismissed[pod]
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
