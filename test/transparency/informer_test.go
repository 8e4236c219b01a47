package transparency

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/features"
	clientfeatures "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// TestInformersFollowTheApiserver runs client-go informers through the hub, with
// and without the watch-list protocol, while objects come, change and go and the
// apiserver restarts, and holds what they know against the apiserver.
func TestInformersFollowTheApiserver(t *testing.T) {
	f := newFixture(t)
	hub := f.startHub(t, "")
	for _, watchListOn := range []bool{true, false} {
		t.Run(fmt.Sprintf("watch-list %v", watchListOn), func(t *testing.T) {
			clientfeatures.SetFeatureDuringTest(t, features.WatchListClient, watchListOn)
			client, err := kubernetes.NewForConfig(&rest.Config{Host: hub.plainURL, ContentConfig: rest.ContentConfig{ContentType: protobuf}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			factory := informers.NewSharedInformerFactory(client, 0)
			t.Cleanup(func() {
				cancel()
				factory.Shutdown()
			})
			known := factory.Core().V1().ConfigMaps().Informer()
			factory.Start(ctx.Done())
			if !cache.WaitForCacheSync(ctx.Done(), known.HasSynced) {
				t.Fatal("the informer does not sync")
			}
			namespace := fmt.Sprintf("informer-%v", watchListOn)
			f.comeChangeAndGo(t, namespace)
			f.awaitEqual(t, known)
			if err := f.cluster.APIServer().Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.comeChangeAndGo(t, namespace+"-again")
			f.awaitEqual(t, known)
		})
	}
}

func (f *fixture) comeChangeAndGo(t *testing.T, namespace string) {
	t.Helper()
	ctx := t.Context()
	if _, err := f.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	maps := f.client.CoreV1().ConfigMaps(namespace)
	for i := range 100 {
		object, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c-", i)}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		object.Data = map[string]string{"k": "changed"}
		if i%3 > 0 {
			_, err = maps.Update(ctx, object, metav1.UpdateOptions{})
		}
		if i%3 == 2 && err == nil {
			err = maps.Delete(ctx, object.Name, metav1.DeleteOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// awaitEqual waits until the informer has what the apiserver has, object by
// object and version by version.
func (f *fixture) awaitEqual(t *testing.T, known cache.SharedIndexInformer) {
	t.Helper()
	var differ string
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := f.client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		store := known.GetStore()
		differ = ""
		if n := len(store.ListKeys()); n != len(list.Items) {
			differ = fmt.Sprintf("the informer has %d objects, the apiserver %d", n, len(list.Items))
			return false, nil
		}
		for _, want := range list.Items {
			got, ok, err := store.GetByKey(want.Namespace + "/" + want.Name)
			if err != nil {
				return false, err
			}
			if !ok || got.(*corev1.ConfigMap).ResourceVersion != want.ResourceVersion {
				differ = fmt.Sprintf("%s/%s is not in the informer at version %s", want.Namespace, want.Name, want.ResourceVersion)
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, differ)
	}
}
