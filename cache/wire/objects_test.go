package wire_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/cache/wire"
)

var encodings = []wire.Encoding{wire.Protobuf, wire.JSON}

// allTypes has the built-in types, and those an apiserver makes of them.
func allTypes(tb testing.TB) *runtime.Scheme {
	tb.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme} {
		if err := add(s); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

// encoder returns the serializer that an apiserver writes bodies with; with streamed it
// writes lists item by item, as it does since 1.33.
func encoder(tb testing.TB, s *runtime.Scheme, e wire.Encoding, streamed bool) runtime.Serializer {
	tb.Helper()
	var options []serializer.CodecFactoryOptionsMutator
	if streamed {
		options = append(options, serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
	}
	codecs := serializer.NewCodecFactory(s, options...)
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), e.MediaType())
	if !ok {
		tb.Fatalf("no serializer for %s", e.MediaType())
	}
	return info.Serializer
}

func encode(tb testing.TB, to runtime.Encoder, object runtime.Object) []byte {
	tb.Helper()
	out, err := runtime.Encode(to, object)
	if err != nil {
		tb.Fatalf("encode %T: %v", object, err)
	}
	return out
}

// bare is the object as its list holds it, by the type's own marshaller.
func bare(tb testing.TB, s *runtime.Scheme, e wire.Encoding, object runtime.Object) []byte {
	tb.Helper()
	if e == wire.Protobuf {
		b, err := object.(interface{ Marshal() ([]byte, error) }).Marshal()
		if err != nil {
			tb.Fatal(err)
		}
		return b
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return bytes.TrimSuffix(encode(tb, encoder(tb, s, e, false), object), []byte("\n"))
}

// eachListType calls f with every list of built-in objects.
func eachListType(t *testing.T, s *runtime.Scheme, f func(t *testing.T, kind schema.GroupVersionKind)) {
	var kinds []schema.GroupVersionKind
	for kind := range s.AllKnownTypes() {
		object, err := s.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		// A List of anything is what kubectl writes, no apiserver.
		if meta.IsListType(object) && kind.Kind != "List" && kind.Version != runtime.APIVersionInternal && hasObjectMeta(t, object) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) < 90 {
		t.Fatalf("only %d list types", len(kinds))
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) { f(t, kind) })
	}
}

func hasObjectMeta(tb testing.TB, list runtime.Object) bool {
	tb.Helper()
	_, err := meta.Accessor(newItem(tb, list))
	return err == nil
}

// newItem returns an empty item of a list.
func newItem(tb testing.TB, list runtime.Object) runtime.Object {
	tb.Helper()
	if err := growList(list, 1); err != nil {
		tb.Fatal(err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		tb.Fatal(err)
	}
	if err := growList(list, 0); err != nil {
		tb.Fatal(err)
	}
	return items[0]
}

// newList returns a list of n objects with random content.
func newList(tb testing.TB, s *runtime.Scheme, kind schema.GroupVersionKind, n int) runtime.Object {
	tb.Helper()
	list, err := s.New(kind)
	if err != nil {
		tb.Fatal(err)
	}
	random := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), serializer.NewCodecFactory(s)).NumElements(1, 3)
	if err := growList(list, n); err != nil {
		tb.Fatal(err)
	}
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		random.Fill(item)
		setGVK(item, schema.GroupVersionKind{})
		if strings.HasPrefix(kind.Kind, "PartialObjectMetadata") {
			setGVK(item, kind.GroupVersion().WithKind("PartialObjectMetadata"))
		}
		return nil
	})
	setGVK(list, kind)
	m, err := meta.ListAccessor(list)
	if err != nil {
		tb.Fatal(err)
	}
	m.SetResourceVersion("4711")
	m.SetContinue("eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ==<&>")
	remaining := int64(n) * 1000
	m.SetRemainingItemCount(&remaining)
	return list
}

func setGVK(object runtime.Object, kind schema.GroupVersionKind) {
	object.GetObjectKind().SetGroupVersionKind(kind)
}

// newPods returns a list of pods of about 5.8 KB in protobuf, as a controller's are.
func newPods(n int) *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "123456"}}
	setGVK(list, corev1.SchemeGroupVersion.WithKind("PodList"))
	began := metav1.NewTime(time.Unix(1700000000, 0))
	for i := range n {
		pod := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("web-7d4b9c-%05d", i), Namespace: "default", UID: "0b4e3c1e-7d2f-4f6a-9b0d-3f0f5f4e2a11",
				ResourceVersion: fmt.Sprint(100000 + i), CreationTimestamp: began,
				Labels:      map[string]string{"app": "web", "pod-template-hash": "7d4b9c"},
				Annotations: map[string]string{"example.com/note": `a "quoted" note, with <brackets>`},
				ManagedFields: []metav1.ManagedFieldsEntry{{
					Manager: "kubelet", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", Subresource: "status", Time: &began,
					FieldsV1: metav1.NewFieldsV1(`{"f:status":{` + strings.Repeat(`"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:type":{}}},`, 30) + `"f:phase":{}}}`),
				}},
			},
			Spec: corev1.PodSpec{NodeName: "edge-1", Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists"}}},
		}
		for j := range 3 {
			c := corev1.Container{Name: fmt.Sprint("c", j), Image: "registry.example.com/web/server:v1.2.3"}
			for k := range 10 {
				c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", k), Value: strings.Repeat("value ", 10)})
			}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, Image: c.Image, Ready: true, ContainerID: "containerd://" + strings.Repeat("0123456789abcdef", 4),
			})
		}
		for _, c := range []corev1.PodConditionType{"Ready", "Initialized", "PodScheduled", "ContainersReady"} {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c, Status: "True", LastTransitionTime: began})
		}
		list.Items = append(list.Items, pod)
	}
	return list
}
