package transparency

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// manyItems is the length of the long list, in objects.
const manyItems = 50_000

func TestSameAnswersAsTheApiserver(t *testing.T) {
	f := newFixture(t)
	resourceVersion := f.fill(t)

	requests := append([]call{
		{name: "watch from a version", path: configMaps + "?watch=true&timeoutSeconds=1&resourceVersion=" + resourceVersion, status: 200},
		{name: "watch from a version, protobuf", path: configMaps + "?watch=true&timeoutSeconds=1&resourceVersion=" + resourceVersion, header: accept(protobuf), status: 200},
		{name: "watch from a version, Table", path: configMaps + "?watch=true&timeoutSeconds=1&resourceVersion=" + resourceVersion, header: accept(table), status: 200, vary: age},
		{name: "watch with initial events and bookmark", path: configMaps + watchList + "&timeoutSeconds=1", status: 200},
		{name: "watch with initial events and bookmark, as kubelet asks", path: configMaps + watchList + "&timeoutSeconds=1", header: map[string]string{"Accept": kubelet, "Accept-Encoding": "gzip"}, status: 200, unzip: true},
		{name: "watch from something that is no version", path: configMaps + "?watch=true&timeoutSeconds=1&resourceVersion=abc", status: 500},
		{name: "LIST at a version that is not there yet", path: configMaps + "?resourceVersionMatch=NotOlderThan&resourceVersion=9999999", status: 504, vary: progress},
		{name: "watch under the old prefix", path: "/api/v1/watch/namespaces/default/configmaps?timeoutSeconds=1&resourceVersion=" + resourceVersion, status: 200},
	}, calls...)
	for _, w := range f.ways {
		t.Run(w.name, func(t *testing.T) {
			for _, c := range requests { // watches wait for a second
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					w.compare(t, c)
				})
			}
			t.Run("LIST page by page", func(t *testing.T) { w.comparePages(t, configMaps+"?limit=3") })
		})
	}
}

// Long lists are the apiserver's, too, byte for byte.
func TestLongListsAreTheApiservers(t *testing.T) {
	f := newFixture(t)
	f.fillMany(t)
	for _, w := range f.ways {
		t.Run(w.name, func(t *testing.T) {
			t.Run("LIST of 50,000 items", func(t *testing.T) {
				a := w.compare(t, call{path: "/api/v1/namespaces/many/configmaps?resourceVersion=0", header: accept(protobuf), status: 200})
				if n := bytes.Count(a.body, []byte("\x04many")); n < manyItems {
					t.Errorf("the list has %d items", n)
				}
			})
			t.Run("LIST of 50,000 items, gzip", func(t *testing.T) {
				w.compare(t, call{path: "/api/v1/namespaces/many/configmaps?resourceVersion=0", header: map[string]string{"Accept-Encoding": "gzip"}, status: 200})
			})
		})
	}
}

const watchList = "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

// compare sends c straight, twice through the hub, and straight again, until the two
// straight answers are equal: then nothing has changed meanwhile that the
// cluster itself had changed, and the hub's answers have to be the same: the first, and
// the one to what the cache has already.
func (w way) compare(t *testing.T, c call) *answer {
	t.Helper()
	if c.method == "" {
		c.method = http.MethodGet
	}
	ends := []end{w.direct, w.hub, w.hub, w.direct}
	if strings.Contains(c.path, "watch") { // nothing that the cache has
		ends = []end{w.direct, w.hub, w.direct}
	}
	const tries = 10
	for range tries {
		var answers []*answer
		for _, e := range ends {
			a, err := e.send(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
		}
		before, through, after := answers[0], answers[1:len(answers)-1], answers[len(answers)-1]
		if difference(c, before, after) != "" {
			continue
		}
		if before.status != c.status {
			t.Fatalf("the apiserver itself answers %d, expected %d: %.500s", before.status, c.status, before.body)
		}
		for i, a := range through {
			if d := difference(c, before, a); d != "" {
				t.Fatalf("%s %s, answer %d of the hub\n%s", c.method, c.path, i+1, d)
			}
			if c.unzip && before.header.Get("Content-Encoding") == a.header.Get("Content-Encoding") {
				t.Fatalf("%s %s: the apiserver answers with headers %v, the hub with %v", c.method, c.path, before.header, a.header)
			}
		}
		return before
	}
	t.Fatalf("the apiserver's own answers differed from each other %d times", tries)
	return nil
}

// difference describes in words how b is not a, or nothing.
func difference(c call, a, b *answer) string {
	mask := func(body []byte) []byte {
		if c.vary == nil {
			return body
		}
		return c.vary.ReplaceAll(body, []byte("-"))
	}
	if c.unzip {
		a, b = a.unzipped(), b.unzipped()
	}
	var out []string
	if a.status != b.status {
		out = append(out, fmt.Sprintf("status %d and %d", a.status, b.status))
	}
	if a.proto != b.proto {
		out = append(out, fmt.Sprintf("%s and %s", a.proto, b.proto))
	}
	if !reflect.DeepEqual(headers(a), headers(b)) {
		out = append(out, fmt.Sprintf("headers %v\n    and %v", a.header, b.header))
	}
	if !reflect.DeepEqual(a.trailer, b.trailer) {
		out = append(out, fmt.Sprintf("trailers %v and %v", a.trailer, b.trailer))
	}
	if (a.err == nil) != (b.err == nil) {
		out = append(out, fmt.Sprintf("body ended with %v and %v", a.err, b.err))
	}
	if x, y := mask(a.body), mask(b.body); !bytes.Equal(x, y) {
		out = append(out, fmt.Sprintf("bodies of %d and %d bytes: %.300q\n    and %.300q", len(x), len(y), x, y))
	}
	return strings.Join(out, "\n")
}

// headers leaves out Content-Length: an apiserver sends it over HTTP/2 with
// bodies up to 4 KiB and over HTTP/1.1 with bodies up to 2 KiB, and the hub
// speaks HTTP/2 to it. Where it is sent, net/http holds the body against it.
func headers(a *answer) http.Header {
	h := a.header.Clone()
	if a.proto == "HTTP/1.1" {
		h.Del("Content-Length")
	}
	return h
}

var continueToken = regexp.MustCompile(`"continue":"([^"]*)"`)

// comparePages follows the continue tokens that the hub hands out.
func (w way) comparePages(t *testing.T, path string) {
	t.Helper()
	pages, items := 0, 0
	for next := path; next != ""; pages++ {
		through, err := w.hub.send(t.Context(), call{method: http.MethodGet, path: next})
		if err != nil {
			t.Fatal(err)
		}
		if pages > 0 { // the first page has the version of now, later ones that of the first
			direct, err := w.direct.send(t.Context(), call{method: http.MethodGet, path: next})
			if err != nil {
				t.Fatal(err)
			}
			if d := difference(call{}, direct, through); d != "" {
				t.Fatalf("page %d: %s", pages+1, d)
			}
		}
		items += bytes.Count(through.body, []byte(`"namespace":"default"`))
		next = ""
		if token := continueToken.FindSubmatch(through.body); token != nil {
			next = path + "&continue=" + string(token[1])
		}
	}
	if pages < 4 || items < 12 {
		t.Errorf("%d items on %d pages", items, pages)
	}
}

// fill makes the objects that calls are about, and returns the resourceVersion
// before the last ten of them.
func (f *fixture) fill(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	if _, err := f.create(ctx, "default", "large", map[string]string{"k": strings.Repeat("0123456789", 100_000)}, nil); err != nil {
		t.Fatal(err)
	}
	from, err := f.create(ctx, "default", "cm", map[string]string{"k": "v"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if _, err := f.create(ctx, "default", fmt.Sprintf("list-%d", i), nil, map[string]string{"n": fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	return from.ResourceVersion
}

// fillMany makes the objects of a long list.
func (f *fixture) fillMany(t *testing.T) {
	t.Helper()
	if _, err := f.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "many"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(32)
	for i := range manyItems {
		g.Go(func() error {
			_, err := f.create(ctx, "many", fmt.Sprintf("m-%05d", i), map[string]string{"k": "v"}, nil)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) create(ctx context.Context, namespace, name string, data, labels map[string]string) (*corev1.ConfigMap, error) {
	return f.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: data,
	}, metav1.CreateOptions{FieldManager: "fixture"})
}
