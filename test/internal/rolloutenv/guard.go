package rolloutenv

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// lenience is how long after a test caused a fault a deletion is not called wrong for it:
// the controller cannot know of the fault before its watches do.
const lenience = 2 * time.Second

// Guard checks each deletion of a pod against the whole cluster, one at a time. It is safe
// for concurrent use.
type Guard struct {
	admin     *kubernetes.Clientset
	namespace string
	most      func(ready int) int

	one sync.Mutex // held during a deletion

	mu         sync.Mutex
	faults     map[string]time.Time // by node, when a test did something to it; guarded by mu
	held       map[types.UID]hold   // guarded by mu
	refusing   time.Time            // since when admission refuses new pods; zero: it does not; guarded by mu
	violations []string             // guarded by mu
	deleted    []string             // nodes, in order; guarded by mu
}

// hold is when a pod must not be deleted.
type hold struct{ since, until time.Time }

// NewGuard guards the pods of a namespace. most returns how many of the Ready nodes may be
// without an available pod.
func (s *Env) NewGuard(namespace string, most func(ready int) int) *Guard {
	return &Guard{admin: s.Admin, namespace: namespace, most: most, faults: map[string]time.Time{}, held: map[types.UID]hold{}}
}

// Fault records that the test has done something to a node.
func (g *Guard) Fault(node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults[node] = time.Now()
}

// Refusing records whether admission refuses new pods from now on.
func (g *Guard) Refusing(refusing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusing = (time.Time{}); refusing {
		g.refusing = time.Now()
	}
}

// refuses reports whether the controller must have known, when its request arrived, that no pod would come in place of
// another.
func (g *Guard) refuses(arrived time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.refusing.IsZero() && arrived.Sub(g.refusing) > lenience
}

// Held records that a pod must not be deleted until a time.
func (g *Guard) Held(pod types.UID, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[pod] = hold{time.Now(), until}
}

// isHeld reports whether the controller must have known, when its request arrived, that a pod is held, for
// some time yet: what is written to pods has whole seconds.
func (g *Guard) isHeld(pod types.UID, arrived time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	h, ok := g.held[pod]
	return ok && arrived.Sub(h.since) > lenience && h.until.Sub(arrived) > 2*time.Second
}

// Violations are the deletions that should not have been, in words.
func (g *Guard) Violations() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.violations)
}

// Deleted are the nodes whose pods were deleted, in order.
func (g *Guard) Deleted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.deleted)
}

// watch looks, then sends the request. What the controller could know is judged by when the request
// arrived: it may wait here for others.
func (g *Guard) watch(namespace, pod string, dead *atomic.Bool, send func() (*http.Response, error)) (*http.Response, error) {
	if namespace != g.namespace {
		return send()
	}
	arrived := time.Now()
	g.one.Lock()
	defer g.one.Unlock()
	if dead.Load() {
		return nil, errKilled
	}
	victim, wrong := g.look(pod, arrived)
	response, err := send()
	if err == nil && response.StatusCode == http.StatusOK { // else a precondition kept it from being done
		g.mu.Lock()
		defer g.mu.Unlock()
		g.deleted = append(g.deleted, victim)
		g.violations = append(g.violations, wrong...)
	}
	return response, err
}

// look returns the pod's node, and what would be wrong with its deletion.
func (g *Guard) look(pod string, arrived time.Time) (victim string, wrong []string) {
	ctx := context.Background()
	nodes, err := g.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", []string{fmt.Sprintf("list nodes: %v", err)}
	}
	pods, err := g.admin.CoreV1().Pods(g.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", []string{fmt.Sprintf("list pods: %v", err)}
	}
	on := map[string][]*corev1.Pod{}
	for i := range pods.Items {
		p := &pods.Items[i]
		on[rollout.NodeOf(p)] = append(on[rollout.NodeOf(p)], p)
		if p.Name == pod {
			victim = rollout.NodeOf(p)
			if g.isHeld(p.UID, arrived) {
				wrong = append(wrong, fmt.Sprintf("the pod on %s was deleted, which its owner holds", victim))
			}
			if g.refuses(arrived) {
				wrong = append(wrong, fmt.Sprintf("the pod on %s was deleted, though admission refuses the next one", victim))
			}
		}
	}
	return victim, append(wrong, g.judge(nodes.Items, on, victim, arrived)...)
}

// judge counts the Ready nodes without an available pod, as they are once the
// victim's is gone.
func (g *Guard) judge(nodes []corev1.Node, on map[string][]*corev1.Pod, victim string, arrived time.Time) (wrong []string) {
	if !available(on[victim]) {
		return nil // it serves nobody
	}
	var (
		ready int // and those that were a moment ago
		down  []string
	)
	for i := range nodes {
		n := &nodes[i]
		if !nodeReady(n) {
			switch {
			case g.excused(n.Name, arrived):
				ready++
			case n.Name == victim:
				wrong = append(wrong, fmt.Sprintf("the pod on %s was deleted, which is not Ready", victim))
			}
			continue
		}
		ready++
		if n.Name == victim || (!available(on[n.Name]) && !g.excused(n.Name, arrived)) {
			down = append(down, n.Name)
		}
	}
	if most := g.most(ready); len(down) > most {
		wrong = append(wrong, fmt.Sprintf("the pod on %s was deleted: that makes %d nodes without an available pod, %v, of at most %d",
			victim, len(down), down, most))
	}
	return wrong
}

func (g *Guard) excused(node string, arrived time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return arrived.Sub(g.faults[node]) < lenience
}

func available(pods []*corev1.Pod) bool {
	return len(pods) == 1 && pods[0].DeletionTimestamp.IsZero() && podReady(pods[0])
}

func podReady(pod *corev1.Pod) bool {
	c := api.Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func nodeReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// deletesPod reads a request.
func deletesPod(q *http.Request) (namespace, name string, ok bool) {
	parts := strings.Split(q.URL.Path, "/")
	if q.Method != http.MethodDelete || len(parts) != 7 || parts[5] != "pods" {
		return "", "", false
	}
	return parts[4], parts[6], true
}

// resourceOf returns the resource of a path, with its subresource.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > 0 && parts[0] == "api" {
		parts = parts[min(2, len(parts)):]
	} else {
		parts = parts[min(3, len(parts)):]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	switch len(parts) {
	case 0:
		return path
	case 3:
		return parts[0] + "/" + parts[2]
	default:
		return parts[0]
	}
}
