package discovery_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/discovery"
)

// TestClientGosDiscovery calls the discovery client of kubectl twice, the second time without an
// apiserver, and another client that knows only plain discovery.
func TestClientGosDiscovery(t *testing.T) {
	p := open(t, memory{}, discovery.Options{})
	var away atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			status, header, body, ok := p.Answer("u", r)
			if !ok {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			for name := range header {
				w.Header().Set(name, header.Get(name))
			}
			w.WriteHeader(status)
			w.Write(body)
			return
		}
		recorded := httptest.NewRecorder()
		apiserver(t, recorded, r)
		p.Keep("u", r, recorded.Code, recorded.Header(), recorded.Body.Bytes())
		w.Header().Set("Content-Type", recorded.Header().Get("Content-Type"))
		w.WriteHeader(recorded.Code)
		w.Write(recorded.Body.Bytes())
	}))
	defer server.Close()

	for _, legacy := range []bool{false, true} {
		for _, gone := range []bool{false, true} {
			away.Store(gone)
			client, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			client.UseLegacyDiscovery = legacy
			_, lists, err := client.ServerGroupsAndResources()
			if err != nil || len(lists) != 1 || len(lists[0].APIResources) != 1 || lists[0].APIResources[0].Name != "deployments" {
				t.Errorf("legacy %v, away %v: %v, %v", legacy, gone, lists, err)
			}
			if version, err := client.ServerVersion(); err != nil || version.Major != "1" {
				t.Errorf("legacy %v, away %v: %v, %v", legacy, gone, version, err)
			}
		}
	}
}

// apiserver serves one resource, with aggregated discovery for clients that accept it.
func apiserver(tb testing.TB, w http.ResponseWriter, r *http.Request) {
	wantsAggregated := len(r.Header.Get("Accept")) > len("application/json, */*")
	answers := map[string]string{
		"/version":      `{"major":"1","minor":"36"}`,
		"/api":          `{"kind":"APIVersions","versions":[]}`,
		"/apis":         `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"deployments","kind":"Deployment","namespaced":true,"verbs":["get"]}]}`,
	}
	body, ok := answers[r.URL.Path]
	switch {
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		return
	case wantsAggregated && r.URL.Path[:4] == "/api" && len(r.URL.Path) <= 5:
		w.Header().Set("Content-Type", aggregated)
		body = aggregatedList(tb, r.URL.Path == "/apis")
	default:
		w.Header().Set("Content-Type", "application/json")
	}
	io.WriteString(w, body)
}

func aggregatedList(tb testing.TB, withApps bool) string {
	list := &apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	if withApps {
		list.Items = []apidiscoveryv2.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: "apps"},
			Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{{
				Resource: "deployments", Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"get"},
				ResponseKind: &metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
			}}}},
		}}
	}
	_, body, err := convert.EncodeBody("", list)
	if err != nil {
		tb.Error(err)
	}
	return string(body)
}
