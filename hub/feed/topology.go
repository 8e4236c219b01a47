// Package feed reads what the filters of Services decide by: the annotations of all
// Services, this node's labels, and, if a Service asks for it, which nodes its pool has.
//
// The requests go through the hub with the node's identity, so the cache answers them offline
// and after a restart. A node may read Services and its own Node. To list the nodes of its pool
// it needs a right that deploy/servicefilters grants; without it no endpoint is left out for
// its pool. Of nodes, only the metadata is read.
package feed

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/proxy/topology"
)

// askAgain is how long after a refusal the hub asks again for the nodes of its pool.
const askAgain = time.Minute

// Topology keeps a State up to date.
type Topology struct {
	state *topology.State
	node  string
	core  rest.Interface
	nodes metadata.ResourceInterface
	log   *slog.Logger
}

// New returns the Topology that feeds a State. config is for requests through the hub, and core a client of
// the core group for it.
func New(state *topology.State, node string, config *rest.Config, core rest.Interface, log *slog.Logger) (*Topology, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Topology{state, node, core, client.Resource(corev1.SchemeGroupVersion.WithResource("nodes")), log}, nil
}

// Run reads from when the State is first wanted until ctx ends.
func (f *Topology) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-f.state.Wanted():
	}
	services := cache.NewListWatchFromClient(f.core, "services", metav1.NamespaceAll, fields.Everything())
	own := f.nodesWhere(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", f.node).String()
	})
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { follow(ctx, services, &corev1.Service{}, &serviceStore{state: f.state}) })
	running.Go(func() { follow(ctx, own, &metav1.PartialObjectMetadata{}, &nodeStore{state: f.state}) })
	running.Go(func() { f.followPools(ctx) })
}

// follow keeps a store up to date until ctx ends.
func follow(ctx context.Context, from cache.ListerWatcher, of any, to cache.ReflectorStore) {
	cache.NewReflectorWithOptions(from, of, to, cache.ReflectorOptions{}).RunWithContext(ctx)
}

// nodesWhere lists and watches the metadata of nodes.
func (f *Topology) nodesWhere(selected func(*metav1.ListOptions)) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			selected(&o)
			return f.nodes.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			selected(&o)
			return f.nodes.Watch(ctx, o)
		},
	}
}

// followPools reads the members of the node's pool while a Service needs them.
func (f *Topology) followPools(ctx context.Context) {
	for ctx.Err() == nil {
		pool, changed := f.state.NeededPool()
		if pool == "" {
			wait(ctx, changed)
			continue
		}
		reading, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { f.followPool(reading, pool) })
		for now := pool; now == pool && ctx.Err() == nil; {
			wait(ctx, changed)
			now, changed = f.state.NeededPool()
		}
		stop()
		running.Wait()
	}
}

func wait(ctx context.Context, changed <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-changed:
	}
}

// followPool reads the members of a pool, as soon as the hub may.
func (f *Topology) followPool(ctx context.Context, pool string) {
	selector := labels.Set{topology.PoolLabel: pool}.String()
	for warned := false; ; warned = true {
		_, err := f.nodes.List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1})
		if !apierrors.IsForbidden(err) {
			break
		}
		f.state.MembersRefused(pool)
		if !warned {
			f.log.Warn("the hub may not list the nodes of this node's pool, and no endpoint is left out for its pool: kubectl apply -k deploy/servicefilters",
				"pool", pool, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askAgain):
		}
	}
	members := f.nodesWhere(func(o *metav1.ListOptions) { o.LabelSelector = selector })
	follow(ctx, members, &metav1.PartialObjectMetadata{}, &memberStore{state: f.state, pool: pool})
}
