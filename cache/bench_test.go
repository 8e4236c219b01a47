package cache

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
)

// BenchmarkOfflineList answers lists of 5,000 pods of 4 KB from the disk.
func BenchmarkOfflineList(b *testing.B) {
	c := openBenchCache(b)
	q := &query.Query{User: query.NodeUser, Verb: "list", Accept: "application/vnd.kubernetes.protobuf"}
	q.Resource.Version, q.Resource.Resource = "v1", "pods"
	v := c.views.Acquire(query.Key{User: query.NodeUser, Version: "v1", Resource: "pods", Representation: "protobuf"})
	builder := v.NewBuilder("", true)
	for i := range 5000 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("pod-%05d", i), ResourceVersion: fmt.Sprint(i + 1),
			Annotations: map[string]string{"a": strings.Repeat("x", 4000)},
		}}
		bare, err := p.Marshal()
		if err != nil {
			b.Fatal(err)
		}
		if err := builder.Add("ns/"+p.Name, p.ResourceVersion, bare); err != nil {
			b.Fatal(err)
		}
	}
	builder.Meta = podList
	builder.Meta.ResourceVersion = "5000"
	builder.Commit("5000")
	builder.End()
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	_, w := c.disk.Now()
	go func() { done <- w.Run(ctx) }()
	stop() // one last commit
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	for b.Loop() {
		x := &exchange{cache: c, req: r, info: &request.RequestInfo{IsResourceRequest: true}, who: caller{user: query.NodeUser}, query: q}
		res, err := x.ask().List()
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if err != nil || n != res.ContentLength {
			b.Fatal(n, err)
		}
		b.SetBytes(n)
	}
}

// BenchmarkOnlineList decodes a list of 5,000 pods while it is relayed, plain and compressed as by
// an apiserver: one that is new to the view, and one that the view has.
func BenchmarkOnlineList(b *testing.B) {
	list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5000"}}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		list.Items = append(list.Items, benchPod(i, random))
	}
	plain, err := runtime.Encode(scheme.Codecs.EncoderForVersion(protobufOf(b), corev1.SchemeGroupVersion), &list)
	if err != nil {
		b.Fatal(err)
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil || w.Close() != nil {
		b.Fatal(err)
	}
	for name, body := range map[string][]byte{"": plain, "gzip": zipped.Bytes()} {
		for _, known := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/known=%v", cmp.Or(name, "plain"), known), func(b *testing.B) {
				readList(b, body, name, known)
			})
		}
	}
}

func readList(b *testing.B, body []byte, encoding string, known bool) {
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	c := openBenchCache(b)
	v := c.views.Acquire(query.Key{User: query.NodeUser, Version: "v1", Resource: "pods", Representation: "protobuf"})
	defer v.Release()
	res := &http.Response{Header: http.Header{"Content-Encoding": {encoding}}}
	read := func() {
		builder := v.NewBuilder("", true)
		defer builder.End()
		d := tee.NewDecoder(v.Repr, res, builder)
		for rest := body; len(rest) > 0; {
			n, _ := d.Write(rest[:min(len(rest), 32<<10)])
			rest = rest[n:]
		}
		if err := d.Finish(); err != nil {
			b.Fatal(err)
		}
		builder.Commit(builder.Meta.ResourceVersion)
	}
	for read(); b.Loop(); read() {
		if !known {
			b.StopTimer()
			v.Reset()
			b.StartTimer()
		}
	}
}

// benchPod returns a pod of a usual size, with as many random characters as a real one has: its UID,
// and digests of its image and container.
func benchPod(i int, random *rand.Rand) corev1.Pod {
	hex := func() string {
		return fmt.Sprintf("%016x%016x%016x%016x", random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64())
	}
	at := metav1.NewTime(time.Unix(1.7e9+int64(i), 0))
	condition := func(t corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: at}
	}
	fields := `{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"` + hex()[:36] +
		`\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{}}}}}`
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("app-%d-%s-%05d", i%50, hex()[:10], i), UID: types.UID(hex()[:36]), ResourceVersion: fmt.Sprint(i + 1),
			CreationTimestamp: at, Labels: map[string]string{"app": fmt.Sprintf("app-%d", i%50), "pod-template-hash": hex()[:10]},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app", UID: types.UID(hex()[:36])}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kube-controller-manager", Operation: "Update", Time: &at, FieldsV1: metav1.NewFieldsV1(fields)},
				{Manager: "kubelet", Operation: "Update", Time: &at, FieldsV1: metav1.NewFieldsV1(fields)},
			},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%d", i%100), ServiceAccountName: "default",
			Containers:  []corev1.Container{{Name: "app", Image: "registry.example.com/app:v1", Args: []string{"--config=/etc/app/config.yaml", "--v=2"}}},
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.%d.%d.%d", i/65536, i/256%256, i%256), StartTime: &at,
			Conditions: []corev1.PodCondition{condition(corev1.PodReady), condition(corev1.ContainersReady), condition(corev1.PodScheduled), condition(corev1.PodInitialized)},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "app", Image: "registry.example.com/app:v1", ImageID: "registry.example.com/app@sha256:" + hex(), ContainerID: "containerd://" + hex(),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
			}},
		},
	}
}

func protobufOf(b *testing.B) runtime.Serializer {
	b.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), protobuf)
	if !ok {
		b.Fatal("no protobuf")
	}
	return info.Serializer
}

func openBenchCache(b *testing.B) *Cache {
	b.Helper()
	c, err := Open(b.TempDir(), nobody{}, testOptions(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	return c
}
