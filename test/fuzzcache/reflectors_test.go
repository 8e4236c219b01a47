package fuzzcache

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// reflect has one of client-go's reflectors follow a query of core resources until ctx
// ends. Its events are compared with the history like those of any watch.
func (fl *follower) reflect(ctx context.Context) error {
	c, q, f := fl.c, fl.q, fl.f
	config := &rest.Config{Host: c.base, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: asJSON, AcceptContentTypes: f.accept(false)}}
	kube, err := kubernetes.NewForConfigAndClient(config, c.http)
	if err != nil {
		return err
	}
	lw := toolscache.NewFilteredListWatchFromClient(kube.CoreV1().RESTClient(), q.resource.name, q.namespace, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = q.labels, q.fields
	})
	var object runtime.Object = &corev1.ConfigMap{}
	switch q.resource {
	case pods:
		object = &corev1.Pod{}
	case secrets:
		object = &corev1.Secret{}
	}
	s := &reflection{fl}
	s.what += " by a reflector"
	reflector := toolscache.NewReflectorWithOptions(lw, object, s, toolscache.ReflectorOptions{Name: s.what})
	reflector.RunWithContext(ctx)
	return nil
}

// reflected is how long ago a reflector may have got from the hub what it reports.
const reflected = 5 * time.Second

// reflection is the store of a reflector.
type reflection struct {
	*follower
}

func (s *reflection) take(kind watch.EventType, o any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	got, err := stateOf(o.(runtime.Object), 0)
	if err != nil {
		s.complain("an event that cannot be read", "%v", err)
		return nil
	}
	s.opened = time.Now().Add(-reflected)
	if !s.lost && s.items != nil {
		s.event(kind, got)
	}
	return nil
}

// Add is a reflector's.
func (s *reflection) Add(o any) error { return s.take(watch.Added, o) }

// Update is a reflector's.
func (s *reflection) Update(o any) error { return s.take(watch.Modified, o) }

// Delete is a reflector's.
func (s *reflection) Delete(o any) error { return s.take(watch.Deleted, o) }

// Resync is a reflector's, and does nothing.
func (s *reflection) Resync() error { return nil }

// Replace is a reflector's: it has listed.
func (s *reflection) Replace(list []any, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := map[string]*state{}
	for _, o := range list {
		got, err := stateOf(o.(runtime.Object), 0)
		if err != nil {
			s.complain("an item that cannot be read", "%v", err)
			return nil
		}
		items[got.key()] = got
	}
	rev, err := parse(version)
	if err != nil || s.c.w.history.await(rev) != nil {
		s.complain("a version that etcd never had", "the list of a reflector: %q", version)
		return nil
	}
	s.lost, s.skipped = false, 0
	s.begin(items, rev)
	s.opened = time.Now().Add(-reflected)
	if s.matches(rev) {
		s.c.saw(s.q, s.f, nil, rev, false, s.opened, time.Now())
	}
	s.c.w.did("lists by reflectors")
	return nil
}
