package ota

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/nodepods"
)

// maxWatches is how many callers may follow the pods at a time. What changes is kept for each until it has read that, within bounds.
const maxWatches = 16

// listEvery is how often the pods are listed at most, after listsAtOnce: any user of the node may ask, and a list has
// megabytes. One upgrade takes three.
const (
	listEvery   = time.Second
	listsAtOnce = 30
)

// nodePods are the pods of one node. Callers share its lists. It is safe for concurrent use.
type nodePods struct {
	*Pods
	node    string
	offered func(*corev1.Pod) *corev1.Pod // see Bundles

	mu   sync.Mutex
	pace *rate.Limiter
	last *listing // under way, or done; nil: none yet
}

// listing is one LIST.
type listing struct {
	began time.Time
	done  chan struct{} // closed when the others are set
	list  *corev1.PodList
	err   error
}

func newNodePods(pods *Pods, node string, offered func(*corev1.Pod) *corev1.Pod) *nodePods {
	return &nodePods{Pods: pods, node: node, offered: offered, pace: rate.NewLimiter(rate.Every(listEvery), listsAtOnce)}
}

// List lists the pods in the cloud, or in the cache while that is away. The list began when it was called, or later, and is the caller's own.
func (p *nodePods) List(ctx context.Context) (*corev1.PodList, error) {
	called := time.Now()
	for {
		l, wait := p.since(called)
		if l == nil {
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if l.err != nil {
			return nil, l.err
		}
		return l.list.DeepCopy(), nil // even to encode a quantity writes into it
	}
}

// since returns a listing that began at some time at the earliest, or else after which time to ask again.
func (p *nodePods) since(earliest time.Time) (_ *listing, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && !p.last.began.Before(earliest) {
		return p.last, 0
	}
	turn := p.pace.Reserve()
	if wait := turn.Delay(); wait > 0 {
		turn.Cancel()
		return nil, wait
	}
	l := &listing{began: time.Now(), done: make(chan struct{})}
	p.last = l
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), cloudTimeout) // whoever asked first may leave
		defer cancel()
		if l.list, l.err = p.Pods.List(ctx, p.node); l.err == nil {
			for i := range l.list.Items {
				l.list.Items[i] = *p.offered(&l.list.Items[i])
			}
		}
		close(l.done)
	}()
	return l, 0
}

// find returns all pods, and among them the one with this name, or nil. While the cloud can be reached, they come from the
// apiserver: the next step may delete the pod.
func (p *nodePods) find(ctx context.Context, name types.NamespacedName) ([]corev1.Pod, *corev1.Pod, error) {
	list, err := p.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		if pod := &list.Items[i]; nameOf(pod) == name {
			return list.Items, pod, nil
		}
	}
	return list.Items, nil, nil
}

// listPods answers with the pods of this node as a v1 PodList, or, with watch=true, with a line for each
// event.
func (s *server) listPods(w http.ResponseWriter, r *http.Request) error {
	query, err := nodepods.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return failf(http.StatusBadRequest, "%w", err)
	}
	s.setOfflineSince(w)
	if query.Watch && r.Method != http.MethodHead {
		return s.watchPods(w, r, &query)
	}
	list, err := s.pods.List(r.Context())
	s.setOfflineSince(w) // it may have come from the cache only because the cloud went meanwhile
	if err != nil {
		return s.cloudFailure(r.Context(), err, "list the pods of node "+s.NodeName)
	}
	query.Select(list)
	for i := range list.Items {
		s.describe(&list.Items[i])
	}
	list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"} // decoding leaves it out
	if list.Items == nil {
		list.Items = []corev1.Pod{} // an empty list, not null
	}
	return writeJSON(w, list, "")
}

func (s *server) setOfflineSince(w http.ResponseWriter) {
	if online, since := s.Cloud(); !online {
		w.Header().Set(api.OfflineSinceHeader, since.UTC().Format(time.RFC3339))
	}
}

// watchPods writes a line of JSON for each event, as an apiserver does, until the caller is gone or does not
// read, is too far behind, its timeout is over, or the hub stops.
func (s *server) watchPods(w http.ResponseWriter, r *http.Request, query *nodepods.Query) error {
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	default:
		return failf(http.StatusServiceUnavailable, "%d callers follow the pods of this node already: end one of those watches, or ask without watch=true", maxWatches)
	}
	if s.Followed == nil {
		return failf(http.StatusNotImplemented, "this hub does not follow its node's pods: ask without watch=true")
	}
	if s.stopping.Err() != nil {
		return s.watchStops()
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	if query.Timeout > 0 {
		defer time.AfterFunc(query.Timeout, cancel).Stop()
	}
	if !s.Followed.Synced() { // then it can be said why, or it will be
		if _, err := s.pods.List(ctx); err != nil {
			return s.cloudFailure(r.Context(), err, "list the pods of node "+s.NodeName)
		}
	}
	out := newLines(w)
	if s.Followed.Follow(ctx, query, out.begin, func(e nodepods.Event) bool {
		s.describe(e.Object)
		return out.write(e)
	}) != nil {
		return s.watchStops()
	}
	return nil
}

func (s *server) watchStops() error {
	return failf(http.StatusServiceUnavailable, "follow the pods of node %s: the hub is stopping; send the request again", s.NodeName)
}
