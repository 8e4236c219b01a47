package informer

import (
	"fmt"

	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// NewDaemonSets returns an informer, not started yet, of all DaemonSets. It calls add with
// the name of each one that changes.
func NewDaemonSets(client kubernetes.Interface, add func(cache.ObjectName)) (cache.SharedIndexInformer, error) {
	informer := appsinformers.NewDaemonSetInformer(client, "", 0, cache.Indexers{})
	if err := informer.SetTransform(TrimDaemonSet); err != nil {
		return nil, fmt.Errorf("watch DaemonSets: %w", err)
	}
	changed := func(object any) {
		if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
			add(key)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, object any) { changed(object) },
		DeleteFunc: changed,
	})
	if err != nil {
		return nil, fmt.Errorf("watch DaemonSets: %w", err)
	}
	return informer, nil
}
