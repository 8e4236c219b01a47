package cache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	urlNodePods    = urlPods + "?fieldSelector=spec.nodeName%3Dnode1"
	urlSlices      = "/apis/discovery.k8s.io/v1/endpointslices"
	urlProxySlices = urlSlices + "?labelSelector=%21service.kubernetes.io%2Fheadless" // as kube-proxy
	urlSlice       = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices/web-1"
	watchSlices    = urlProxySlices + "&watch=true&allowWatchBookmarks=true"
	listWatch      = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	kubeProxy      = "kube-proxy.token"
)

// sliceCloud are apiservers with pods and EndpointSlices, at version 100.
type sliceCloud struct {
	*upstream
	podFeeds, sliceFeeds chan *io.PipeWriter

	mu      sync.Mutex
	version string
	pods    []*corev1.Pod
	slices  []*discoveryv1.EndpointSlice
}

// node1 has pods a and b; a serves "web" together with a pod of another node.
func newSliceCloud() *sliceCloud {
	s := &sliceCloud{
		upstream: newUpstream(), podFeeds: make(chan *io.PipeWriter, 100), sliceFeeds: make(chan *io.PipeWriter, 100), version: "100",
		pods:   []*corev1.Pod{nodePod("a", "50", "10.0.0.1", true), nodePod("b", "51", "10.0.0.2", true)},
		slices: []*discoveryv1.EndpointSlice{webSlice("90", webEndpoint("a", "10.0.0.1", true)), otherSlice("91"), apiServerSlice("92")},
	}
	s.on("watch", s.follow)
	s.on("get", s.answer)
	s.on("list", s.answer)
	s.on("check", s.answer)
	return s
}

func (s *sliceCloud) follow(r *http.Request) *http.Response {
	s.mu.Lock() // so that the feed is that of this watch
	res := s.open(r)
	feed := <-s.feeds
	s.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/pods") {
		s.podFeeds <- feed
	} else {
		s.sliceFeeds <- feed
	}
	return res
}

func (s *sliceCloud) answer(r *http.Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/status") {
		body, _ := io.ReadAll(r.Body)
		p := *s.pods[slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return strings.Contains(r.URL.Path, "/"+p.Name+"/") })]
		if err := json.Unmarshal(body, &p); err != nil {
			panic(err)
		}
		p.ResourceVersion = "400"
		return respond(http.StatusOK, mustJSON(&p))
	}
	if strings.HasSuffix(r.URL.Path, "/pods/b") {
		return respond(http.StatusOK, mustJSON(s.pods[1]))
	}
	if strings.HasSuffix(r.URL.Path, "/pods") {
		list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: s.version}}
		for _, p := range s.pods {
			item := *p
			item.TypeMeta = metav1.TypeMeta{}
			list.Items = append(list.Items, item)
		}
		return respond(http.StatusOK, mustJSON(list))
	}
	list := &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: s.version}}
	for _, one := range s.slices {
		item := *one
		item.TypeMeta = metav1.TypeMeta{}
		list.Items = append(list.Items, item)
		if r.URL.Path == urlSlice && one.Name == "web-1" {
			return respond(http.StatusOK, mustJSON(one))
		}
	}
	list.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}
	contentType, body, err := convert.EncodeBody(r.Header.Get("Accept"), list)
	if err != nil {
		panic(err)
	}
	res := respond(http.StatusOK, string(body))
	res.Header.Set("Content-Type", contentType)
	return res
}

// set replaces the slices of the cloud.
func (s *sliceCloud) set(version string, all ...*discoveryv1.EndpointSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.slices = version, all
}

func nodePod(name, version, ip string, ready bool, owner ...metav1.OwnerReference) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("u-" + name), ResourceVersion: version, OwnerReferences: owner},
		Spec:       corev1.PodSpec{NodeName: "node1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
		},
	}
	if ip != "" {
		p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	}
	return p
}

func daemonSet(name string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: name, Controller: &yes}
}

func webEndpoint(pod, ip string, ready bool) discoveryv1.Endpoint {
	node, no := "node1", false
	return discoveryv1.Endpoint{
		Addresses: []string{ip}, NodeName: &node,
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: pod, UID: types.UID("u-" + pod)},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: &no},
	}
}

func newSlice(namespace, name, version string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("u-" + name), ResourceVersion: version,
			Labels: map[string]string{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
	}
}

// webSlice has the given endpoints, and 10.0.9.9 on another node.
func webSlice(version string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	elsewhere := webEndpoint("z", "10.0.9.9", true)
	node := "node2"
	elsewhere.NodeName = &node
	return newSlice("ns", "web-1", version, append(endpoints, elsewhere)...)
}

func otherSlice(version string) *discoveryv1.EndpointSlice {
	s := webSlice(version)
	s.Name = "other-1"
	return s
}

func apiServerSlice(version string) *discoveryv1.EndpointSlice {
	name, port, yes := "https", int32(6443), true
	s := newSlice("default", "kubernetes", version, discoveryv1.Endpoint{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}})
	s.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &port}}
	return s
}

func mustJSON(object any) string {
	b, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func sliceEvent(kind string, s *discoveryv1.EndpointSlice) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, mustJSON(s))
}

// shownSlice describes what matters of a slice: "10.0.0.1 10.0.9.9", with "!" before what is not
// ready.
func shownSlice(s *discoveryv1.EndpointSlice) string {
	var all []string
	for _, e := range s.Endpoints {
		address := strings.Join(e.Addresses, "+")
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			address = "!" + address
		}
		for _, p := range s.Ports {
			address += fmt.Sprint(":", *p.Port)
		}
		all = append(all, address)
	}
	return strings.Join(all, " ")
}

// proxied is a cache behind which kubelet and kube-proxy have read everything.
type proxied struct {
	t *testing.T
	*Cache
	cloud *sliceCloud
	dir   string
	more  []func(*Options)
	stop  func()

	kubelet, proxy *watcher
}

func startProxied(t *testing.T, cloud *sliceCloud, more ...func(*Options)) *proxied {
	t.Helper()
	p := &proxied{t: t, cloud: cloud, dir: filepath.Join(t.TempDir(), "cache"), more: more}
	p.start()
	get(t, p.Cache, urlNodePods)
	p.read(urlProxySlices, "application/json")
	p.read(urlSlice, "application/json")
	p.kubelet = startWatch(t.Context(), t, p.Cache, urlNodePods+"&watch=true&allowWatchBookmarks=true&resourceVersion=100")
	p.proxy = startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+"&resourceVersion=100")
	return p
}

func (p *proxied) start() {
	p.Cache = openCache(p.t, p.dir, p.cloud.upstream, append([]func(*Options){func(o *Options) { o.NodeName = "node1" }}, p.more...)...)
	p.stop = runCache(p.t, p.Cache)
}

// startStopped returns a rig whose clients were shown another address of pod a in an outage, and whose
// hub was stopped then.
func startStopped(t *testing.T, cloud *sliceCloud) *proxied {
	t.Helper()
	p := startProxied(t, cloud, withPodServers)
	p.lose()
	p.report(nodePod("a", "", "10.0.0.7", true))
	time.Sleep(10 * time.Second) // the disk has everything
	p.end()
	return p
}

// end stops the clients, and then the hub.
func (p *proxied) end() {
	for _, w := range []*watcher{p.kubelet, p.proxy} {
		w.stop()
		<-w.done
	}
	p.stop()
}

// lose cuts the cloud off. Watches break.
func (p *proxied) lose() {
	p.cloud.goAway()
	for _, feeds := range []chan *io.PipeWriter{p.cloud.podFeeds, p.cloud.sliceFeeds} {
		for len(feeds) > 0 {
			(<-feeds).CloseWithError(io.ErrUnexpectedEOF)
		}
	}
	synctest.Wait()
}

// resumed returns the feeds of both watches, which have been opened.
func (p *proxied) resumed() (proxy, kubelet *io.PipeWriter) {
	p.t.Helper()
	return p.opened(p.cloud.sliceFeeds), p.opened(p.cloud.podFeeds)
}

func (p *proxied) opened(feeds chan *io.PipeWriter) *io.PipeWriter {
	p.t.Helper()
	select {
	case feed := <-feeds:
		return feed
	case <-time.After(time.Minute):
		p.t.Fatal("the watch is not opened")
		return nil
	}
}

// report writes the status of a pod like kubelet.
func (p *proxied) report(pod *corev1.Pod) {
	p.t.Helper()
	r := newRequest(p.t.Context(), http.MethodPatch, "/api/v1/namespaces/ns/pods/"+pod.Name+"/status")
	status := mustJSON(pod.Status)
	if len(pod.Status.PodIPs) == 0 {
		status = `{"podIP":null,"podIPs":null,` + status[1:]
	}
	body := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":%s}`, pod.UID, status)
	r.Header.Set("Content-Type", "application/merge-patch+json")
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	res, err := p.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatalf("PATCH: %v, %v", res, err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		p.t.Fatal(err)
	}
	res.Body.Close()
	synctest.Wait()
}

// read reads as kube-proxy, and returns the slice web-1.
func (p *proxied) read(url, accept string) *discoveryv1.EndpointSlice {
	p.t.Helper()
	return p.readNamed(url, accept, "web-1")
}

func (p *proxied) readNamed(url, accept, name string) *discoveryv1.EndpointSlice {
	p.t.Helper()
	r := newRequest(as(p.t.Context(), kubeProxy), http.MethodGet, url)
	r.Header.Set("Accept", accept)
	res, err := p.RoundTrip(r)
	if err != nil {
		p.t.Fatalf("GET %s: %v", url, err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatalf("GET %s: %d, %v: %s", url, res.StatusCode, err, body)
	}
	res.Body.Close()
	object, err := convert.DecodeBody(res.Header.Get("Content-Type"), body, wire.TypeMeta{})
	switch o := object.(type) {
	case *discoveryv1.EndpointSlice:
		return o
	case *discoveryv1.EndpointSliceList:
		if at := slices.IndexFunc(o.Items, func(s discoveryv1.EndpointSlice) bool { return s.Name == name }); at >= 0 {
			return &o.Items[at]
		}
	}
	p.t.Fatalf("GET %s: it has no %s: %v", url, name, err)
	return nil
}

// watched are the events of one slice that a watch in JSON got: "MODIFIED !10.0.0.1 10.0.9.9". It
// fails the test if two events that differ have the same version, or if an event is not followed by
// a higher version in time.
func watched(t *testing.T, w *watcher, name string) []string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	last := ""
	for d := json.NewDecoder(bytes.NewReader(w.body.Bytes())); ; {
		var e struct {
			Type   string                    `json:"type"`
			Object discoveryv1.EndpointSlice `json:"object"`
		}
		if err := d.Decode(&e); err != nil {
			return all
		}
		if e.Type == "ERROR" {
			t.Fatal("the watch got an error")
		}
		if e.Type == "BOOKMARK" || e.Object.Name != name {
			continue
		}
		if e.Object.ResourceVersion == last {
			t.Errorf("two events of %s in succession are at version %s", name, last)
		}
		last = e.Object.ResourceVersion
		all = append(all, e.Type+" "+shownSlice(&e.Object))
	}
}
