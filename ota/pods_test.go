package ota

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/api"
)

func TestPods(t *testing.T) {
	t.Run("this node's pods come as a PodList", func(t *testing.T) {
		var selector string
		c := &cloud{list: func(w http.ResponseWriter, r *http.Request) {
			selector = r.URL.Query().Get("fieldSelector")
			podList(upgradable())(w, r)
		}}
		got := call(t, "GET", c.start(t, Options{})+"/pods")
		if got.code != http.StatusOK || got.header.Get("Content-Type") != "application/json" {
			t.Fatalf("got %d %s %q, want JSON", got.code, got.header.Get("Content-Type"), got.body)
		}
		if selector != "spec.nodeName=node-1" {
			t.Errorf("asked the cloud for pods with %q, want this node's", selector)
		}
		var list corev1.PodList
		if err := json.Unmarshal([]byte(got.body), &list); err != nil {
			t.Fatalf("decode: %v", err)
		}
		if list.APIVersion != "v1" || list.Kind != "PodList" || len(list.Items) != 1 {
			t.Fatalf("got %s %s with %d pods, want v1 PodList with one", list.APIVersion, list.Kind, len(list.Items))
		}
		if c := api.Condition(&list.Items[0], api.NeedCondition); c == nil || c.Message != api.Message("new") {
			t.Errorf("got condition %v, want the pod's own", c)
		}
	})
	t.Run("no pods are a list of none", func(t *testing.T) {
		c := &cloud{list: podList()}
		if got := call(t, "GET", c.start(t, Options{})+"/pods"); !strings.Contains(got.body, `"items":[]`) {
			t.Errorf("got %q, want items to be an empty list", got.body)
		}
	})
	t.Run("a cloud that is away is told at once", func(t *testing.T) {
		c := &cloud{list: away}
		call(t, "GET", c.start(t, Options{})+"/pods").wants(t, http.StatusServiceUnavailable, "list the pods of node node-1: the cloud cannot be reached")
		if lists, _ := c.asked(); lists != 1 {
			t.Errorf("%d tries, want one", lists)
		}
	})
}

func TestPodsThatAreSelected(t *testing.T) {
	other := upgradable()
	other.Name, other.UID, other.Labels = "web-2", "uid-2", map[string]string{"app": "other"}
	url := (&cloud{list: podList(upgradable(), other)}).start(t, Options{})
	got := call(t, "GET", url+"/pods?labelSelector=app%3Dother&fieldSelector=metadata.name%3Dweb-2")
	var list corev1.PodList
	if err := json.Unmarshal([]byte(got.body), &list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "web-2" {
		t.Errorf("got %d %s, %v", got.code, got.body, err)
	}
}

// Each path refuses parameters that it does not have, and those that are there twice.
func TestUnknownParameters(t *testing.T) {
	url := (&cloud{list: podList(upgradable())}).start(t, Options{
		ImagePulls: &queue{}, Queue: new(waiting), Holds: &holds{held: true}, Rollbacks: &ran{}, Cache: func() any { return nil },
		Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	})
	for _, request := range []string{
		"GET " + api.Pods, "HEAD " + api.Pods, "GET " + api.ImagePulls, "GET " + api.Upgrades, "GET " + api.Cache,
		"POST " + pullWeb1, "GET " + pullWeb1, "DELETE " + pullWeb1, "POST " + upgradeWeb1, "GET " + upgradeWeb1, "DELETE " + upgradeWeb1,
		"POST " + holdWeb1, "GET " + holdWeb1, "DELETE " + holdWeb1, "POST " + rollbackWeb1, "GET " + historyWeb1,
	} {
		method, path, _ := strings.Cut(request, " ")
		for query, says := range map[string]string{"?wacth=true": `"wacth" is no parameter: there `, "?%zz": "the query cannot be read", "?x%0ay": "is no parameter"} {
			got := call(t, method, url+path+query)
			if got.code != http.StatusBadRequest {
				t.Errorf("%s%s: %d %s", request, query, got.code, got.body)
			} else if method != http.MethodHead {
				checkErrorBody(t, got, says)
			}
		}
	}
	if got := call(t, "GET", url+pullWeb1+"?watch=true&watch=false"); got.code != http.StatusBadRequest || !strings.Contains(got.body, `"watch" is given 2 times`) {
		t.Errorf("twice: %d %s", got.code, got.body)
	}
	for _, path := range []string{api.Healthz, api.Readyz, api.Metrics} { // for probes and scrapers, which may add theirs
		if got := call(t, "GET", url+path+"?collect[]=a&collect[]=b"); got.code != http.StatusOK {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
}

func TestSinceWhenPodsAreOffline(t *testing.T) {
	var online atomic.Bool
	since := time.Date(2026, 5, 6, 9, 8, 9, 0, time.FixedZone("", 7200))
	for name, tt := range map[string]struct {
		method, query string
		list          http.HandlerFunc
		before        bool // it is online when the request comes
		want          string
	}{
		"online":                           {"GET", "", func(w http.ResponseWriter, r *http.Request) { online.Store(true); podList()(w, r) }, true, ""},
		"offline, from the cache":          {"GET", "", podList(upgradable()), false, "2026-05-06T07:08:09Z"},
		"offline, without the body":        {"HEAD", "?watch=true", podList(upgradable()), false, "2026-05-06T07:08:09Z"},
		"offline, and nothing is known":    {"GET", "", away, false, "2026-05-06T07:08:09Z"},
		"the cloud goes during a request":  {"GET", "", func(w http.ResponseWriter, r *http.Request) { online.Store(false); podList()(w, r) }, true, "2026-05-06T07:08:09Z"},
		"the cloud comes during a request": {"GET", "", func(w http.ResponseWriter, r *http.Request) { online.Store(true); podList()(w, r) }, false, "2026-05-06T07:08:09Z"},
	} {
		t.Run(name, func(t *testing.T) {
			online.Store(tt.before)
			url := (&cloud{list: tt.list}).start(t, Options{Cloud: func() (bool, time.Time) { return online.Load(), since }})
			if got := call(t, tt.method, url+api.Pods+tt.query); got.header.Get(api.OfflineSinceHeader) != tt.want {
				t.Errorf("%d, %s: %q, want %q", got.code, api.OfflineSinceHeader, got.header.Get(api.OfflineSinceHeader), tt.want)
			}
		})
	}
}

// answers are those of a hub, as JSON.
type answers func(*http.Request) any

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := json.Marshal(f(r))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
}

// Whoever may call may ask as often as it likes: the cloud is asked once a second, after some at once, and no answer is older than the
// question.
func TestCallersShareTheListOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists, others atomic.Int64
		client, err := NewPods(&rest.Config{Host: "http://hub", Transport: answers(func(r *http.Request) any {
			if r.Method != http.MethodGet {
				others.Add(1)
			}
			n := lists.Add(1)
			time.Sleep(10 * time.Millisecond)
			return corev1.PodList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(n)}, Items: []corev1.Pod{*upgradable()},
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		pods := newNodePods(client, "node-1", func(pod *corev1.Pod) *corev1.Pod { return pod })
		ask := func() {
			before := lists.Load()
			list, err := pods.List(t.Context())
			if err != nil || list.Items[0].Name != "web-1" {
				t.Fatalf("%v, %v", list, err)
			}
			if version, err := strconv.ParseInt(list.ResourceVersion, 10, 64); err != nil || version <= before {
				t.Errorf("list %s, and list %d was there before it was asked for", list.ResourceVersion, before)
			}
			list.Items[0].Name = "mine"
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if _, err := pods.List(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := lists.Load(); n != 1 {
			t.Errorf("50 callers at once cost %d lists", n)
		}
		for i := range int64(listsAtOnce - 1) { // an owner at work does not wait
			began := time.Now()
			if ask(); time.Since(began) != 10*time.Millisecond || lists.Load() != i+2 {
				t.Errorf("list %d took %v", lists.Load(), time.Since(began))
			}
		}
		before, began := lists.Load(), time.Now()
		for range 20 {
			all.Go(func() {
				for range 10 { // of pods that are not there
					if _, found, err := pods.find(t.Context(), types.NamespacedName{Namespace: "default", Name: "nobody"}); found != nil || err != nil {
						t.Errorf("%v, %v", found, err)
					}
				}
			})
		}
		all.Wait()
		if most := int64(time.Since(began)/listEvery) + 1; lists.Load()-before > most || others.Load() > 0 || time.Since(began) > 20*time.Second {
			t.Errorf("%d lists and %d others in %v, want at most %d", lists.Load()-before, others.Load(), time.Since(began), most)
		}
	})
}
