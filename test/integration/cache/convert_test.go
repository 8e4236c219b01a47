package cache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// offline, what was read in protobuf is also there in JSON, and watches in JSON go on when the cloud is back.
func TestJSONFromProtobuf(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3, "a=b")
	l := h.node.servedList(t, s.path, protobuf)
	h.cut()
	want := env.direct.get(t, s.path+"?resourceVersionMatch=Exact&resourceVersion="+l.version, asJSON)
	if got := h.node.get(t, s.path, asJSON); !sameJSON(t, got.body, want.body) {
		t.Errorf("LIST: %v; want %v", got, want)
	}
	want = env.direct.get(t, s.one("c-001"), asJSON)
	if got := h.node.get(t, s.one("c-001"), asJSON); !sameJSON(t, got.body, want.body) {
		t.Errorf("GET: %v; want %v", got, want)
	}
	w := h.node.watch(t, with(s.path, watchListQuery), asJSON)
	items, version := w.initial(t)
	if len(items) != len(l.items) || version != l.version {
		t.Errorf("WatchList: %v at %s", items, version)
	}
	h.node.get(t, s.path, "application/yaml,"+asJSON)
	if got := h.node.get(t, s.path, ""); !sameJSON(t, got.body, h.node.get(t, s.path, asJSON).body) {
		t.Errorf("without Accept: %v", got)
	}
	s.change("c-001", "changed")
	s.remove("c-000")
	h.connect()
	w.expect(t, watch.Modified, "c-001") // whatever its form, it goes on from the list in protobuf
	w.expect(t, watch.Deleted, "c-000")
	l = h.node.servedList(t, s.path, asJSON)
	held := h.node.watch(t, with(s.path, watchQuery+"&resourceVersion="+l.version), asJSON)
	s.change("c-001", "changed again")
	held.expect(t, watch.Modified, "c-001")
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// custom resources are cached like all others: they come in JSON, with sorted keys.
func TestCustomResources(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	group := s.name + ".example"
	things := defineThings(t, group)
	for i := range 4 {
		things.create(t, s.name, fmt.Sprintf("t-%d", i))
	}
	h := newHub(t)
	path := "/apis/" + group + "/v1/namespaces/" + s.name + "/things"
	l := h.node.servedList(t, path, asJSON)
	if len(l.items) != 4 {
		t.Fatalf("the list has %v", l.names())
	}
	w := h.node.watch(t, with(path, watchQuery+"&resourceVersion="+l.version), asJSON)
	things.create(t, s.name, "t-new")
	last := w.expect(t, watch.Added, "t-new").version
	one := h.node.get(t, path+"/t-1", asJSON)
	check := func(when string) {
		t.Helper()
		if l := h.node.servedList(t, path, asJSON); l.version != last {
			t.Errorf("%s the list is at %s, want %s", when, l.version, last)
		}
		h.node.do(t, request{path: path, accept: kubelet}).served(t, path, asJSON)
		if got := h.node.get(t, path+"/t-1", asJSON); !bytes.Equal(got.body, one.body) {
			t.Errorf("%s GET says %v", when, got)
		}
		items, version := h.node.watch(t, with(path, watchListQuery), asJSON).initial(t)
		if len(items) != 5 || version != last {
			t.Errorf("%s the WatchList has %v at %s", when, items, version)
		}
	}
	h.cut()
	check("offline")
	h.stop()
	h.start()
	check("after a restart")
}

// things are custom resources of a kind of the test's own.
type things struct {
	client dynamic.Interface
	gvr    schema.GroupVersionResource
}

func defineThings(t *testing.T, group string) *things {
	t.Helper()
	client, err := dynamic.NewForConfig(env.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]any{"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "things." + group},
		"spec": map[string]any{"group": group, "names": names, "scope": "Namespaced", "versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}}},
	}}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := client.Resource(crds).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	th := &things{client, schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}}
	poll.Until(t, patience, "things are served", func() bool {
		_, err := client.Resource(th.gvr).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	return th
}

func (th *things) create(t *testing.T, namespace, name string) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": th.gvr.Group + "/v1", "kind": "Thing", "metadata": map[string]any{"name": name},
		"zeta": "last", "alpha": "first", "spec": map[string]any{"text": `quotes " and <html> & ünïcode`, "number": int64(7), "nothing": nil},
	}}
	if _, err := th.client.Resource(th.gvr).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
