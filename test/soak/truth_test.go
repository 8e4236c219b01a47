package soak_test

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// settle waits until all followers have what the apiserver has. Nothing changes any more. That each was told every
// event on the way is what fuzzcache compares with etcd's history.
func (w *world) settle() {
	w.t.Helper()
	deadline := time.Now().Add(2 * patience)
	for _, f := range w.followers {
		var want map[string]string
		var err error
		same := func() bool {
			if want, err = w.versions(f.query); err != nil {
				return false
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			return maps.Equal(want, f.items)
		}
		if !w.within(time.Until(deadline), same) {
			f.complain("not what the apiserver has", "it has %v; want %v, %v", f.items, want, err)
		}
	}
}

// versions are those that the apiserver has of what a query selects, by name.
func (w *world) versions(q query) (map[string]string, error) {
	var list metav1.PartialObjectMetadataList
	err := w.admin.CoreV1().RESTClient().Get().Namespace(namespace).Resource(q.resource).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
		VersionedParams(&metav1.ListOptions{LabelSelector: q.labels, FieldSelector: q.fields}, scheme.ParameterCodec).
		Do(w.t.Context()).Into(&list)
	all := map[string]string{}
	for i := range list.Items {
		all[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return all, err
}

// rare fails the test if more than one in 200 watches was too old.
func (w *world) rare() {
	w.t.Helper()
	watches, expired := 0, 0
	for _, f := range w.followers {
		watches, expired = watches+f.watches, expired+f.expired
	}
	if expired*200 > watches {
		w.t.Errorf("of %d watches, %d were too old", watches, expired)
	}
}
