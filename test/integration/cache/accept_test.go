package cache

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// metadataAccept is what client-go's metadata informers accept, with plain JSON last as
// some versions of them have it.
const metadataAccept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// a client that wants metadata gets metadata, though whole objects in a form that it
// names last are at hand.
func TestAcceptOrder_MetadataComesBeforeWholeObjects(t *testing.T) {
	t.Parallel()
	for _, read := range [][]string{{asJSON}, {protobuf}, {protobuf, asJSON}} {
		t.Run(strings.Join(read, " and "), func(t *testing.T) {
			t.Parallel()
			h, s := newHub(t), newSpace(t)
			s.fill("c", 3)
			var version string
			for _, accept := range read {
				version = h.node.servedList(t, s.path, accept).version
				h.node.get(t, s.one("c-001"), accept)
			}
			h.lose()
			want := env.direct.get(t, s.path+"?resourceVersionMatch=Exact&resourceVersion="+version, metadataAccept)
			if got := h.node.get(t, s.path, metadataAccept); !bytes.Equal(got.body, want.body) {
				t.Errorf("LIST: %v; want %v", got, want)
			}
			one := strings.ReplaceAll(metadataAccept, "MetadataList", "Metadata")
			want = env.direct.get(t, s.one("c-001"), one)
			if got := h.node.get(t, s.one("c-001"), one); !bytes.Equal(got.body, want.body) {
				t.Errorf("GET: %v; want %v", got, want)
			}
			w := h.node.watch(t, with(s.path, watchListQuery), one)
			for range 4 {
				if e := w.next(t); !bytes.Contains(e.raw, []byte("PartialObjectMetadata")) || bytes.Contains(e.raw, []byte("first of")) {
					t.Errorf("WATCH: %q", e.raw)
				}
			}
		})
	}
}

// client-go's metadata informers work offline where whole objects were read.
func TestAcceptOrder_MetadataInformersOffline(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	h.node.servedList(t, s.path, asJSON)
	h.lose()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	plainJSONLast := roundTrip(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("Accept", r.Header.Get("Accept")+","+asJSON)
		return transport.RoundTrip(r)
	})
	client, err := metadata.NewForConfig(&rest.Config{Host: h.node.url, QPS: -1, Transport: plainJSONLast})
	if err != nil {
		t.Fatal(err)
	}
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	informer := metadatainformer.NewFilteredMetadataInformer(client, maps, s.name, 0, toolscache.Indexers{}, nil).Informer()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); informer.Run(stop) }()
	defer func() { close(stop); <-done }()
	poll.Until(t, patience, "the informer has what was read", func() bool { return informer.HasSynced() && len(informer.GetStore().List()) == 4 })
}

// offline as online, a client that takes anything gets JSON.
func TestAcceptOrder_AnythingIsJSON(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	version := h.node.servedList(t, s.path, protobuf).version
	h.node.get(t, s.one("c-001"), protobuf)
	h.lose()
	for _, accept := range []string{"*/*", ""} {
		for path, direct := range map[string]string{s.path: s.path + "?resourceVersionMatch=Exact&resourceVersion=" + version, s.one("c-001"): s.one("c-001")} {
			got, want := h.node.get(t, path, accept), env.direct.get(t, direct, asJSON)
			if got.header.Get("Content-Type") != asJSON || !sameJSON(t, got.body, want.body) {
				t.Errorf("GET %s, Accept %q: %v; want %v", path, accept, got, want)
			}
		}
		w := h.node.watch(t, with(s.path, watchListQuery), accept)
		if items, _ := w.initial(t); len(items) != 4 || w.header.Get("Content-Type") != asJSON {
			t.Errorf("WATCH, Accept %q: %v in %s", accept, items, w.header.Get("Content-Type"))
		}
	}
}

// The error explains why kubectl gets no answer: the resource was read, but as a table only.
func TestAcceptOrder_KubectlReadsATableOnly(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 2)
	get := h.kubectlGet(t, s)
	for _, args := range [][]string{{"configmaps"}, {"configmaps", "c-001"}} {
		if _, err := get(args...); err != nil {
			t.Fatal(err)
		}
	}
	h.lose()
	for _, args := range [][]string{{"configmaps"}, {"configmaps", "c-001"}, {"configmaps", "-o", "yaml"}} {
		_, err := get(args...)
		if err == nil || !strings.Contains(err.Error(), "read it once with kubectl get -o yaml") || strings.Contains(err.Error(), "never read") {
			t.Errorf("kubectl get %v says %v", args, err)
		}
	}
	if _, err := get("configmaps", "c-000"); err == nil || !strings.Contains(err.Error(), "never read through this hub") {
		t.Errorf("kubectl get of what was never read: %v", err)
	}
}

// a form that cannot be made of what is cached, and metadata where an object is asked
// for, are no objects that were never read.
func TestAcceptOrder_WhatCannotBeConverted(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 2)
	h.node.servedList(t, s.path, protobuf)
	h.node.get(t, s.one("c-001"), protobuf)
	h.node.get(t, s.path+"?labelSelector=x", metaList)
	h.lose()
	for _, path := range []string{s.path, s.one("c-001")} {
		a := h.node.refused(t, request{path: path, accept: table}, http.StatusNotAcceptable)
		if !strings.Contains(string(a.body), string(metav1.StatusReasonNotAcceptable)) || !strings.Contains(string(a.body), "cannot be converted") {
			t.Errorf("%s as a table: %v", path, a)
		}
	}
	a := h.node.refused(t, request{path: s.path + "?labelSelector=x", accept: protobuf}, http.StatusServiceUnavailable)
	if !strings.Contains(string(a.body), "only the metadata") || strings.Contains(string(a.body), "never read") {
		t.Errorf("whole objects: %v", a)
	}
}

// kubectlGet returns how kubectl reads a space through the hub.
func (h *hub) kubectlGet(t *testing.T, s *space) func(args ...string) (string, error) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: h.node.url}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", Namespace: s.name}
	config.CurrentContext = "hub"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) (string, error) {
		cacheDir := t.TempDir() // discovery is asked for each time
		return env.Kubectl(t.Context(), append([]string{"--kubeconfig=" + file, "--cache-dir=" + cacheDir, "get"}, args...)...)
	}
}
