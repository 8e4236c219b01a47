package ota

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/podlist"
)

// maxWatches is how many callers may follow the pods at a time. Each costs the hub two connections and some 150 kB of
// memory, measured with 100 pods.
const maxWatches = 16

// nodePods are the pods of one node, for a caller who follows them.
type nodePods struct {
	*Pods
	node string
}

// List implements podlist.Source.
func (p nodePods) List(ctx context.Context) (*corev1.PodList, error) {
	ctx, cancel := context.WithTimeout(ctx, cloudTimeout)
	defer cancel()
	return p.Pods.List(ctx, p.node)
}

// Watch implements podlist.Source.
func (p nodePods) Watch(ctx context.Context, version string) (watch.Interface, error) {
	return p.watch(ctx, p.node, version)
}

// listPods answers with the pods of this node as a v1 PodList, or, with watch=true, with a line for each
// event.
func (s *server) listPods(w http.ResponseWriter, r *http.Request) error {
	query, err := podlist.Parse(r.URL.RawQuery)
	if err != nil {
		return failf(http.StatusBadRequest, "%w", err)
	}
	s.setOfflineSince(w)
	pods := nodePods{s.Pods, s.NodeName}
	if query.Watch && r.Method != http.MethodHead {
		return s.watchPods(w, r, pods, &query)
	}
	list, err := pods.List(r.Context())
	s.setOfflineSince(w) // it may have come from the cache only because the cloud went meanwhile
	if err != nil {
		return s.cloudFailure(r.Context(), err, "list the pods of node "+s.NodeName)
	}
	query.Select(list)
	list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"} // decoding leaves it out
	if list.Items == nil {
		list.Items = []corev1.Pod{} // an empty list, not null
	}
	return writeJSON(w, list, "")
}

func (s *server) setOfflineSince(w http.ResponseWriter) {
	if online, since := s.Cloud(); !online {
		w.Header().Set(nodeapi.OfflineSinceHeader, since.UTC().Format(time.RFC3339))
	}
}

// watchPods writes a line of JSON for each event, as an apiserver does, until the caller is gone or does not
// read, its timeout is over, or the hub stops.
func (s *server) watchPods(w http.ResponseWriter, r *http.Request, pods nodePods, query *podlist.Query) error {
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	default:
		return failf(http.StatusServiceUnavailable, "%d callers follow the pods of this node already: end one of those watches, or ask without watch=true", maxWatches)
	}
	if s.stopping.Err() != nil {
		return failf(http.StatusServiceUnavailable, "follow the pods of node %s: the hub is stopping; send the request again", s.NodeName)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	if query.Timeout > 0 {
		defer time.AfterFunc(query.Timeout, cancel).Stop()
	}
	out := newLines(w)
	if err := query.Follow(ctx, pods, out.begin, func(e podlist.Event) bool { return out.write(e) }); err != nil {
		return s.cloudFailure(r.Context(), err, "list the pods of node "+s.NodeName)
	}
	return nil
}
