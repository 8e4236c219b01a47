package cache

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

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
	h := newHub(t)
	type list struct {
		*space
		version string
	}
	lists := map[string]list{}
	for name, read := range map[string][]string{"read in JSON": {asJSON}, "read in protobuf": {protobuf}, "read in both": {protobuf, asJSON}} {
		s := list{space: newSpace(t)}
		s.fill("c", 3)
		for _, accept := range read {
			s.version = h.node.servedList(t, s.path, accept).version
			h.node.get(t, s.one("c-001"), accept)
		}
		lists[name] = s
	}
	h.lose()
	for name, s := range lists {
		t.Run(name, func(t *testing.T) {
			want := env.direct.get(t, s.path+"?resourceVersionMatch=Exact&resourceVersion="+s.version, metadataAccept)
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

// What cannot be answered in the form that is asked for, or was read in a form that is not kept: the answer says what is the matter.
func TestAcceptOrder_WhatCannotBeConverted(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 2)
	const kubectl = table + "," + asJSON
	onlyMetadata, asTable := s.path+"?labelSelector=x", s.path+"?labelSelector=y"
	h.node.servedList(t, s.path, protobuf)
	h.node.get(t, s.one("c-001"), protobuf)
	metadata := h.node.get(t, onlyMetadata, metaList)
	h.node.get(t, asTable, kubectl)
	h.lose()
	for _, c := range []struct {
		path, accept string
		status       int
		says         string
	}{
		{s.path, table, http.StatusNotAcceptable, "cannot be converted"},
		{s.one("c-001"), table, http.StatusNotAcceptable, "cannot be converted"},
		{onlyMetadata, protobuf, http.StatusServiceUnavailable, "only the metadata"},
		{asTable, kubectl, http.StatusServiceUnavailable, "read it once with kubectl get -o yaml"},
		{asTable, asJSON, http.StatusServiceUnavailable, "read it once with kubectl get -o yaml"},
	} {
		a := h.node.refused(t, request{path: c.path, accept: c.accept}, c.status)
		if !strings.Contains(string(a.body), c.says) {
			t.Errorf("%s as %s: want %q; got %v", c.path, c.accept, c.says, a)
		}
	}
	if a := h.node.get(t, onlyMetadata, metaList); !bytes.Equal(a.body, metadata.body) {
		t.Errorf("only metadata: %v; want %v", a, metadata)
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
