package cache_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/fakeapiserver"
)

const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf,application/json"
	objects    = 30 // names of each resource in each namespace
	immortal   = 5  // of them, those that are there always
)

// view is something that a client reads again and again.
type view struct {
	name   string
	query  fakeapiserver.Query
	accept string
	token  string // empty: the node
	// How it is read: initial events of a watch, pages of so many, a list and then a
	// watch, or lists only.
	initialEvents bool
	page          int
	listsOnly     bool
}

func newViews() []*view {
	return []*view{
		{name: "pods of the node", query: query("pods", "", "", "spec.nodeName="+nodeName), accept: asProtobuf, initialEvents: true},
		{name: "services", query: query("services", "", "", ""), accept: asProtobuf},
		{name: "one ConfigMap", query: query("configmaps", "a", "", "metadata.name=n-0"), accept: asProtobuf, initialEvents: true},
		{name: "no ConfigMap", query: query("configmaps", "a", "", "metadata.name=nobody"), accept: asProtobuf, initialEvents: true},
		{name: "red ConfigMaps of a user", query: query("configmaps", "a", "colour=red", ""), accept: asJSON, token: "first-user"},
		{name: "blue ConfigMaps of the same user", query: query("configmaps", "a", "colour=blue", ""), accept: asJSON, token: "first-user", initialEvents: true},
		{name: "pages of another user", query: query("configmaps", "b", "", ""), accept: asJSON, token: "second-user", page: 7},
		{name: "lists without a watch", query: query("configmaps", "", "", ""), accept: asProtobuf, token: "second-user", listsOnly: true},
	}
}

func query(resource, namespace, labels, fields string) fakeapiserver.Query {
	q, err := fakeapiserver.Query{Resource: resource, Namespace: namespace, Labels: labels, Fields: fields}.Parse()
	if err != nil {
		panic(err) // it stands above
	}
	return q
}

// load reads all views, and changes what they show, until the function that it
// returns is called.
func (w *world) load() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	seed := w.rand.Uint64()
	all.Go(func() { write(ctx, w.cloud, rand.New(rand.NewPCG(seed, 1))) })
	getter := rand.New(rand.NewPCG(seed, 2))
	all.Go(func() {
		for ctx.Err() == nil {
			for _, o := range single(getter) {
				_, _ = get(ctx, w.proxy+o.path(), o.accept, o.token) // the hub may not run
			}
			pause(ctx, 50*time.Millisecond)
		}
	})
	unread := w.read()
	return func() {
		cancel()
		unread()
		all.Wait()
	}
}

// read has all views read by their clients until the function that it returns is
// called.
func (w *world) read() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for _, v := range w.views {
		all.Go(func() {
			for ctx.Err() == nil {
				v.read(ctx, w.proxy)
				pause(ctx, 10*time.Millisecond)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// read reads the view the way its client does until something breaks off.
func (v *view) read(ctx context.Context, proxy string) {
	path := proxy + v.query.Path()
	if v.initialEvents {
		v.follow(ctx, path+"&watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
		return
	}
	version, err := v.list(ctx, path)
	if err != nil || v.listsOnly {
		return
	}
	v.follow(ctx, path+"&watch=true&allowWatchBookmarks=true&resourceVersion="+version)
}

// list reads all pages and returns their version.
func (v *view) list(ctx context.Context, path string) (version string, err error) {
	for next := ""; ; {
		code, body := get(ctx, fmt.Sprintf("%s&limit=%d&continue=%s", path, v.page, next), v.accept, v.token)
		if code != http.StatusOK {
			return "", fmt.Errorf("%d %.200s", code, body)
		}
		list, err := fakeapiserver.Decode(body)
		if err != nil {
			return "", err
		}
		about := list.(metav1.ListInterface)
		version = about.GetResourceVersion()
		if next = about.GetContinue(); next == "" {
			return version, nil
		}
	}
}

func (v *view) follow(ctx context.Context, url string) {
	res, err := open(ctx, url, v.accept, v.token)
	if err != nil {
		return
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body) // until the hub is killed
}

// fill makes all objects, so that most queries have an answer.
func fill(cloud *fakeapiserver.Server, r *rand.Rand) {
	for i := range objects {
		for _, resource := range []string{"configmaps", "pods", "services"} {
			for _, namespace := range []string{"a", "b"} {
				put(cloud, r, resource, namespace, i)
			}
		}
	}
}

// write changes, deletes and makes objects, some hundreds a second.
func write(ctx context.Context, cloud *fakeapiserver.Server, r *rand.Rand) {
	for ctx.Err() == nil {
		resource := []string{"configmaps", "configmaps", "pods", "services"}[r.IntN(4)]
		namespace, i := string("ab"[r.IntN(2)]), r.IntN(objects)
		if r.IntN(5) == 0 && i >= immortal {
			cloud.Delete(resource, namespace, nameOf(i))
		} else {
			put(cloud, r, resource, namespace, i)
		}
		pause(ctx, time.Duration(r.IntN(6))*time.Millisecond)
	}
}

func nameOf(i int) string { return "n-" + strconv.Itoa(i) }

// put writes an object whose size and selection are another each time.
func put(cloud *fakeapiserver.Server, r *rand.Rand, resource, namespace string, i int) {
	about := metav1.ObjectMeta{Name: nameOf(i), Namespace: namespace, Labels: map[string]string{"colour": []string{"red", "blue", "green"}[r.IntN(3)]}}
	about.Annotations = map[string]string{"text": strings.Repeat(strconv.FormatUint(r.Uint64(), 36), 1+r.IntN(1<<r.IntN(9)))}
	var object fakeapiserver.Object
	switch resource {
	case "configmaps":
		object = &corev1.ConfigMap{ObjectMeta: about}
	case "services":
		object = &corev1.Service{ObjectMeta: about, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}
	default:
		node := []string{nodeName, nodeName, "node2"}[r.IntN(3)]
		if before, ok := cloud.Latest(resource, namespace, about.Name).(*corev1.Pod); ok {
			node = before.Spec.NodeName // no apiserver lets a pod move: it stays there for as long as it exists
		}
		object = &corev1.Pod{ObjectMeta: about, Spec: corev1.PodSpec{NodeName: node}}
	}
	cloud.Put(resource, object)
}

// one is an object that is read by its name.
type one struct{ resource, namespace, name, accept, token string }

func (o one) path() string {
	return "/api/v1/namespaces/" + o.namespace + "/" + o.resource + "/" + o.name
}

// single are objects that clients read by their names.
func single(r *rand.Rand) []one {
	return []one{
		{"pods", "a", nameOf(r.IntN(objects)), asProtobuf, ""},
		{"configmaps", "b", nameOf(r.IntN(objects)), asJSON, "second-user"},
	}
}
