package cache

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
	var all sync.WaitGroup // kubectl asks again for ten seconds
	for _, args := range [][]string{{"configmaps"}, {"configmaps", "c-001"}, {"configmaps", "-o", "yaml"}} {
		all.Go(func() {
			_, err := get(args...)
			if err == nil || !strings.Contains(err.Error(), "read it once with kubectl get -o yaml") || strings.Contains(err.Error(), "never read") {
				t.Errorf("kubectl get %v says %v", args, err)
			}
		})
	}
	all.Go(func() {
		if _, err := get("configmaps", "c-000"); err == nil || !strings.Contains(err.Error(), "never read through this hub") {
			t.Errorf("kubectl get of what was never read: %v", err)
		}
	})
	all.Wait()
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
