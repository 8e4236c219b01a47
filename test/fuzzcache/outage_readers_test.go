package fuzzcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// reader is what a client knows of a query by client-go's reflector, which alone fills the store,
// and how the apiserver is asked for the same.
type reader struct {
	name  string
	store cache.Store
	cloud *cache.ListWatch
}

// follow starts a reader, which ends with its test.
func (r *round) follow(who string, hub, cloud cache.Getter, resource string, kind runtime.Object, selector fields.Selector) *reader {
	p := &reader{
		name:  who + ": " + resource,
		store: cache.NewStore(cache.MetaNamespaceKeyFunc),
		cloud: cache.NewListWatchFromClient(cloud, resource, metav1.NamespaceAll, selector),
	}
	reflector := cache.NewReflectorWithOptions(cache.NewListWatchFromClient(hub, resource, metav1.NamespaceAll, selector), kind, p.store,
		cache.ReflectorOptions{Name: p.name})
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{}) // closed when the reflector has ended
	go func() { defer close(ended); reflector.RunWithContext(ctx) }()
	r.Cleanup(func() { cancel(); <-ended })
	r.readers = append(r.readers, p)
	return p
}

// differs returns an error for each object that the reader has otherwise than the apiserver.
func (p *reader) differs(ctx context.Context) error {
	list, err := p.cloud.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	var errs []error
	want := map[string]bool{}
	for _, item := range items {
		key, err := cache.MetaNamespaceKeyFunc(item)
		if err != nil {
			return err
		}
		want[key] = true
		object, there, _ := p.store.GetByKey(key) // this kind of store returns no error
		if !there {
			errs = append(errs, fmt.Errorf("%s has no %s", p.name, key))
		} else if got := bare(object.(runtime.Object)); !equality.Semantic.DeepEqual(got, bare(item)) {
			errs = append(errs, fmt.Errorf("%s has %s as\n\t%s, the apiserver has\n\t%s", p.name, key, text(got), text(item)))
		}
	}
	for _, key := range p.store.ListKeys() {
		if !want[key] {
			errs = append(errs, fmt.Errorf("%s has %s, which is not there", p.name, key))
		}
	}
	return errors.Join(errs...)
}

// bare leaves out the type, which an object of a list does not have.
func bare(object runtime.Object) runtime.Object {
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return object
}

// text is an object for people.
func text(object runtime.Object) string {
	object = bare(object)
	if about, err := meta.Accessor(object); err == nil {
		about.SetManagedFields(nil)
	}
	out, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(out)
}
