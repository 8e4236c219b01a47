package cache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// BenchmarkOnlineList decodes a list of 5,000 pods of 4 KB while it is relayed: one that is new
// to the view, and one that the view has.
func BenchmarkOnlineList(b *testing.B) {
	list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5000"}}
	for i := range 5000 {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("pod-%05d", i), ResourceVersion: fmt.Sprint(i + 1),
			Annotations: map[string]string{"a": strings.Repeat("x", 4000)},
		}})
	}
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(protobufOf(b), corev1.SchemeGroupVersion), &list)
	if err != nil {
		b.Fatal(err)
	}
	for _, known := range []bool{false, true} {
		b.Run(fmt.Sprintf("known=%v", known), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			c := openBenchCache(b)
			v := c.views.Acquire(query.Key{User: query.NodeUser, Version: "v1", Resource: "pods", Representation: "protobuf"})
			defer v.Release()
			read := func() {
				builder := v.NewBuilder("", true)
				defer builder.End()
				d := tee.NewDecoder(v.Repr, &http.Response{}, builder)
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
		})
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
