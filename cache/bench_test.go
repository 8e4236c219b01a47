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
	"k8s.io/apiserver/pkg/endpoints/request"
)

// BenchmarkOfflineList answers lists of 5,000 pods of 4 KB from the disk.
func BenchmarkOfflineList(b *testing.B) {
	c := openBenchCache(b)
	q := &query{user: nodeUser, verb: "list", accept: "application/vnd.kubernetes.protobuf"}
	q.resource.Version, q.resource.Resource = "v1", "pods"
	v := c.views.acquire(viewKey{User: nodeUser, Version: "v1", Resource: "pods", Representation: "protobuf"})
	st := v.newStage("", true)
	for i := range 5000 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("pod-%05d", i), ResourceVersion: fmt.Sprint(i + 1),
			Annotations: map[string]string{"a": strings.Repeat("x", 4000)},
		}}
		bare, err := p.Marshal()
		if err != nil {
			b.Fatal(err)
		}
		if err := st.add("ns/"+p.Name, p.ResourceVersion, bare); err != nil {
			b.Fatal(err)
		}
	}
	st.meta = podList
	st.meta.ResourceVersion = "5000"
	st.commit("5000")
	st.end()
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	_, w := c.disk.now()
	go func() { done <- w.Run(ctx) }()
	stop() // one last commit
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	for b.Loop() {
		x := &exchange{cache: c, req: r, info: &request.RequestInfo{IsResourceRequest: true}, who: caller{user: nodeUser}, query: q}
		res, err := x.list()
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
