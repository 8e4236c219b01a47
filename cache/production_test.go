package cache

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/answer"
	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// representations are the forms that an answer may have.
var representations = []wire.Representation{
	{Encoding: wire.Protobuf}, {Encoding: wire.JSON}, {Encoding: wire.Protobuf, Metadata: "v1"}, {Encoding: wire.JSON, Metadata: "v1"},
}

var podType = wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}

// largePods are pods in protobuf, some of them larger than what may wait for a client.
func largePods(t *testing.T, sizes ...int) (names []string, bare [][]byte) {
	t.Helper()
	for i, size := range sizes {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("p%03d", i), ResourceVersion: fmt.Sprint(i + 1),
			Annotations: map[string]string{"a": strings.Repeat("<x>", size/3)},
		}}
		b, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		names, bare = append(names, "ns/"+p.Name), append(bare, b)
	}
	return names, bare
}

// wholeList encodes a list at once, not in pieces.
func wholeList(t *testing.T, r wire.Representation, items [][]byte) []byte {
	t.Helper()
	src := &answer.Source{View: &view.View{}, Repr: r}
	var sizes wire.ItemSizes
	var converted [][]byte
	for _, item := range items {
		var err error
		if r.Metadata != "" {
			item, err = convert.Metadata(wire.Protobuf, r.Encoding, item)
		} else {
			item, err = convert.Bare(wire.Protobuf, r.Encoding, podType, item)
		}
		if err != nil {
			t.Fatal(err)
		}
		converted = append(converted, item)
		sizes.Add(len(item))
	}
	m := podList
	m.ResourceVersion = "5000"
	var out bytes.Buffer
	list, err := wire.NewListWriter(&out, r.Encoding, src.Meta(m), sizes)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range converted {
		if err := list.WriteItem(item); err != nil {
			t.Fatal(err)
		}
	}
	if err := list.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestAListInPiecesIsTheWholeList(t *testing.T) {
	for name, sizes := range map[string][]int{
		"nothing": nil, "small ones": {10, 20, 3000, 10}, "many": make([]int, 500),
		"large ones": {10, 100_000, 70_000, 10, 150_000}, "one that just does not fit": {answer.MaxWaiting - 60}, "one large": {170_000},
	} {
		names, items := largePods(t, sizes...)
		c := startCache(t, newUpstream())
		fillWith(t, c, names, items)
		for _, r := range representations {
			for _, room := range []int64{0, answer.MaxLargeWaiting} { // for large pieces
				for how, read := range map[string]func(io.Reader) ([]byte, error){"read": io.ReadAll, "written": written} {
					t.Run(fmt.Sprintf("%s, %s, room for %d, %s", name, r, room, how), func(t *testing.T) {
						c.offline.Reserve(answer.MaxLargeWaiting - room)
						defer c.offline.Reserve(room - answer.MaxLargeWaiting)
						want := wholeList(t, r, items)
						res := listOffline(t, c, r.AcceptList())
						got, err := read(res.Body)
						if err != nil || !bytes.Equal(got, want) {
							t.Errorf("%v: %d bytes, want %d; %.300q", err, len(got), len(want), got)
						}
						if n := res.ContentLength; n >= 0 && n != int64(len(want)) || n < 0 && r.Encoding == wire.Protobuf {
							t.Errorf("Content-Length is %d, want %d", n, len(want))
						}
						if err := res.Body.Close(); err != nil {
							t.Error(err)
						}
						if n := c.offline.Reserve(0); n != answer.MaxLargeWaiting-room {
							t.Errorf("%d bytes of large pieces are still counted", n-answer.MaxLargeWaiting+room)
						}
					})
				}
			}
		}
	}
}

// written returns what the WriteTo of a body writes.
func written(r io.Reader) ([]byte, error) {
	w, ok := r.(io.WriterTo)
	if !ok {
		return nil, fmt.Errorf("%T does not write itself", r)
	}
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	return b.Bytes(), err
}

// fillWith makes these pods the node's view of all of them.
func fillWith(t *testing.T, c *Cache, names []string, items [][]byte) {
	t.Helper()
	v := c.views.Acquire(query.Key{User: query.NodeUser, Version: "v1", Resource: "pods"})
	defer v.Release()
	b := v.NewBuilder(view.Began{}, true, wire.Protobuf)
	defer b.End()
	for i, item := range items {
		if err := b.Add(names[i], fmt.Sprint(i+1), "", item); err != nil {
			t.Fatal(err)
		}
	}
	b.Meta = podList
	b.Meta.ResourceVersion = "5000"
	c.views.Commit(b, "5000")
}

func listOffline(t *testing.T, c *Cache, accept string) *http.Response {
	t.Helper()
	q := &query.Query{User: query.NodeUser, Verb: "list", Accept: accept}
	q.Resource.Version, q.Resource.Resource = "v1", "pods"
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil)
	x := &exchange{cache: c, req: r, info: &request.RequestInfo{IsResourceRequest: true}, who: caller{user: query.NodeUser}, query: q}
	res, err := x.ask().List()
	if err != nil {
		t.Fatal(err)
	}
	return res
}
