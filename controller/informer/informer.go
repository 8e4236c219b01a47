// Package informer watches what a reconcile reads: all DaemonSets and StatefulSets, all nodes once
// a rollout needs them, and the pods and ControllerRevisions of each workload that opted in.
//
// Objects are trimmed before they are kept: memory grows with the pods of the workloads
// that opted in, not with the cluster. Changes of what was trimmed, such as heartbeats,
// cause no reconcile. Returned objects are shared with the informers and must not be changed.
package informer

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// object is a pointer to an API object.
type object interface {
	comparable
	metav1.Object
	runtime.Object
}

// NewDaemonSets returns an informer, not started yet, of all DaemonSets. It calls changed
// with the name of each one that is added, written or deleted. Any write counts: whoever
// touches a DaemonSet wants it to be reconciled.
func NewDaemonSets(client kubernetes.Interface, changed func(cache.ObjectName)) cache.SharedIndexInformer {
	informer := appsinformers.NewDaemonSetInformer(client, "", 0, cache.Indexers{})
	setUp(informer, TrimDaemonSet, func(_, _ *appsv1.DaemonSet) bool { return true }, changed)
	return informer
}

// NewStatefulSets is NewDaemonSets for StatefulSets.
func NewStatefulSets(client kubernetes.Interface, changed func(cache.ObjectName)) cache.SharedIndexInformer {
	informer := appsinformers.NewStatefulSetInformer(client, "", 0, cache.Indexers{})
	setUp(informer, TrimStatefulSet, differ, changed)
	return informer
}

// setUp prepares a new informer: it keeps what trim leaves of each object, and calls
// changed when an object is added, deleted, or updated and its trimmed versions are different.
func setUp[T object](
	informer cache.SharedIndexInformer, trim func(T) T, different func(before, after T) bool, changed func(cache.ObjectName),
) {
	// Neither call fails before an informer is started.
	_ = informer.SetTransform(func(o any) (any, error) {
		if whole, ok := o.(T); ok {
			return trim(whole), nil
		}
		return o, nil // the tombstone of a deleted object
	})
	typed := cache.NewTypedSharedIndexInformer[T](informer)
	_, _ = typed.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[T]{
		AddFunc: func(added T) { changed(cache.MetaObjectToName(added)) },
		UpdateFunc: func(before, after T) {
			if different(before, after) {
				changed(cache.MetaObjectToName(after))
			}
		},
		DeleteFunc: func(deleted cache.DeletedObject[T]) { changed(deleted.GetObjectName()) },
	})
}

// differ reports whether two trimmed versions of an object differ in more than their
// resourceVersion. A reconcile reads nothing else.
func differ[T object](before, after T) bool {
	same := before.DeepCopyObject().(T) // a deep copy has the same type
	same.SetResourceVersion(after.GetResourceVersion())
	return !equality.Semantic.DeepEqual(same, after)
}

// all returns the objects that informer has.
func all[T object](informer cache.SharedIndexInformer) []T {
	objects := informer.GetStore().List()
	out := make([]T, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.(T)) // an informer holds objects of one type
	}
	return out
}

// consistentList keeps an informer from starting with what an apiserver has cached,
// which may lack the last writes of the previous process.
func consistentList(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}
