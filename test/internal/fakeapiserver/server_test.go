package fakeapiserver

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestInformersAgreeWithTheOracle lets client-go read what is written meanwhile.
func TestInformersAgreeWithTheOracle(t *testing.T) {
	for _, mediaType := range []string{json.mediaType, protobuf.mediaType} {
		t.Run(mediaType, func(t *testing.T) {
			s := New()
			s.Bookmarks = 10 * time.Millisecond
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: mediaType}})
			if err != nil {
				t.Fatal(err)
			}
			write(s, 0, 50)
			q, err := Query{Resource: "configmaps", Namespace: "a", Labels: "odd=true"}.Parse()
			if err != nil {
				t.Fatal(err)
			}
			factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(q.Namespace),
				informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = q.Labels }))
			informer := factory.Core().V1().ConfigMaps().Informer()
			stop := make(chan struct{})
			factory.Start(stop)
			t.Cleanup(func() { close(stop); factory.Shutdown() })
			if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
				t.Fatal("the informer does not sync")
			}
			write(s, 30, 80)
			want := names(s.At(s.Version(), q))
			for began := time.Now(); !slices.Equal(stored(informer.GetStore()), want); time.Sleep(time.Millisecond) {
				if time.Since(began) > 10*time.Second {
					t.Fatalf("the informer has %v, want %v", stored(informer.GetStore()), want)
				}
			}
		})
	}
}

func TestPagesAreOfOneState(t *testing.T) {
	s := New()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	write(s, 0, 7)
	want := names(s.At(s.Version(), Query{Resource: "configmaps"}))
	var got []string
	for next := ""; ; {
		list := read(t, server.URL+"/api/v1/configmaps?limit=3&continue="+next)
		items, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			o := item.(Object)
			got = append(got, keyOf(o)+"@"+o.GetResourceVersion())
		}
		if next = list.(metav1.ListInterface).GetContinue(); next == "" {
			break
		}
		write(s, 0, 2) // the pages to come do not see it
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages are %v, want %v", got, want)
	}
}

// write makes objects from one number to another, changes some, and deletes a few.
func write(s *Server, from, to int) {
	for i := from; i < to; i++ {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: string("ab"[i%2]), Name: fmt.Sprint("n", i), Labels: map[string]string{"odd": fmt.Sprint(i%3 == 1)}},
			Data:       map[string]string{"i": fmt.Sprint(s.Version())},
		}
		s.Put("configmaps", object)
		if i%5 == 4 {
			s.Delete("configmaps", object.Namespace, object.Name)
		}
	}
}

func names(state map[string]Object) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(state)) {
		out = append(out, key+"@"+state[key].GetResourceVersion())
	}
	return out
}

func stored(store cache.Store) []string {
	state := map[string]Object{}
	for _, item := range store.List() {
		o := item.(Object)
		state[keyOf(o)] = o
	}
	return names(state)
}

func read(t *testing.T, url string) runtime.Object {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	object, err := Decode(body)
	if err != nil {
		t.Fatalf("%s: %v: %.200s", url, err, body)
	}
	return object
}
