package cache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
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

	"github.com/edgehub-io/edgehub/cache/localendpoints"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/watch"
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
	if r.Header.Get("Accept") != protobuf {
		list.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}
		return respond(http.StatusOK, mustJSON(list))
	}
	bare, err := list.Marshal()
	if err != nil {
		panic(err)
	}
	res := respond(http.StatusOK, string(wire.AppendBody(nil, wire.Protobuf, wire.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, bare)))
	res.Header.Set("Content-Type", protobuf)
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
	list := decodeSlices(p.t, res.Header.Get("Content-Type"), body)
	at := slices.IndexFunc(list, func(s discoveryv1.EndpointSlice) bool { return s.Name == name })
	if at < 0 {
		p.t.Fatalf("GET %s: it has no %s", url, name)
	}
	return &list[at]
}

// decodeSlices decodes a slice or a list of them.
func decodeSlices(t *testing.T, contentType string, body []byte) []discoveryv1.EndpointSlice {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	var one discoveryv1.EndpointSlice
	var err error
	if contentType == protobuf {
		m, _ := wire.Inspect(wire.Protobuf, body)
		raw, _ := wire.AppendBare(nil, wire.Protobuf, body)
		if string(m.Kind) == "EndpointSlice" {
			if err := one.Unmarshal(raw); err != nil {
				t.Fatal(err)
			}
			return []discoveryv1.EndpointSlice{one}
		}
		err = list.Unmarshal(raw)
	} else if err = json.Unmarshal(body, &one); err == nil && one.Kind == "EndpointSlice" {
		return []discoveryv1.EndpointSlice{one}
	} else {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
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

// TestEndpointsFollowTheNodesPods checks the slice in every form that a client can read.
func TestEndpointsFollowTheNodesPods(t *testing.T) {
	for name, tt := range map[string]struct {
		reported []*corev1.Pod
		want     string
	}{
		"a pod that is not ready":         {[]*corev1.Pod{nodePod("a", "", "10.0.0.1", false)}, "!10.0.0.1 10.0.9.9"},
		"a pod with another address":      {[]*corev1.Pod{nodePod("a", "", "10.0.0.7", true)}, "10.0.0.7 10.0.9.9"},
		"a pod that lost its address":     {[]*corev1.Pod{nodePod("a", "", "", false)}, "10.0.9.9"},
		"a pod that has changed twice":    {[]*corev1.Pod{nodePod("a", "", "10.0.0.1", false), nodePod("a", "", "10.0.0.8", true)}, "10.0.0.8 10.0.9.9"},
		"another pod of the same node":    {[]*corev1.Pod{nodePod("b", "", "10.0.0.2", false)}, "10.0.0.1 10.0.9.9"},
		"a pod that is ready once more":   {[]*corev1.Pod{nodePod("a", "", "10.0.0.1", false), nodePod("a", "", "10.0.0.1", true)}, "10.0.0.1 10.0.9.9"},
		"a pod whose status is the same":  {[]*corev1.Pod{nodePod("a", "", "10.0.0.1", true)}, "10.0.0.1 10.0.9.9"},
		"a pod that has ended, of a Job":  {[]*corev1.Pod{ended("a")}, "10.0.9.9"},
		"a pod that is ready at last":     {[]*corev1.Pod{nodePod("a", "", "", false), nodePod("a", "", "10.0.0.5", true)}, "10.0.0.5 10.0.9.9"},
		"many changes within the version": {many(40), "10.0.1.39 10.0.9.9"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startProxied(t, newSliceCloud())
				protobufOnly := urlSlices + "?labelSelector=a%3Db"
				p.read(protobufOnly, protobuf)
				p.lose()
				if got := watched(t, p.proxy, "web-1"); len(got) != 0 {
					t.Errorf("at the loss the watch gets %q", got)
				}
				for _, pod := range tt.reported {
					p.report(pod)
				}
				if got := watched(t, p.proxy, "web-1"); len(got) > 0 && got[len(got)-1] != "MODIFIED "+tt.want || len(got) == 0 && tt.want != "10.0.0.1 10.0.9.9" {
					t.Errorf("the held watch gets %q, want %q at last", got, tt.want)
				}
				if got := watched(t, p.proxy, "other-1"); len(got) != 0 {
					t.Errorf("of a slice without pods of the node the watch gets %q", got)
				}
				for _, url := range []string{urlProxySlices, urlSlice, protobufOnly} {
					for _, accept := range []string{"application/json", protobuf} {
						got := p.read(url, accept)
						if shownSlice(got) != tt.want {
							t.Errorf("GET %s as %s: %q, want %q", url, accept, shownSlice(got), tt.want)
						}
						if same := tt.want == "10.0.0.1 10.0.9.9"; (got.ResourceVersion == "90") != same || len(got.ResourceVersion) != 2 {
							t.Errorf("GET %s as %s: it is at version %s", url, accept, got.ResourceVersion)
						}
					}
				}
				fresh := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+listWatch)
				synctest.Wait()
				if got := watched(t, fresh, "web-1"); !slices.Equal(got, []string{"ADDED " + tt.want}) {
					t.Errorf("initial events are %q, want %q", got, tt.want)
				}
				if got := fresh.heardEvents(t); got[len(got)-1] != "BOOKMARK:=100" {
					t.Errorf("initial events end with %q", got)
				}
			})
		})
	}
}

func ended(name string) *corev1.Pod {
	p := nodePod(name, "", "10.0.0.1", false)
	p.Status.Phase = corev1.PodSucceeded
	return p
}

func many(n int) (pods []*corev1.Pod) {
	for i := range n {
		pods = append(pods, nodePod("a", "", fmt.Sprint("10.0.1.", i), true))
	}
	return pods
}

// TestEndpointsAtTheLoss: the cloud went away before its slices followed the pods.
func TestEndpointsAtTheLoss(t *testing.T) {
	for name, tt := range map[string]struct {
		event string // of kubelet's watch
		want  []string
	}{
		"a deleted pod":       {podObjectEvent("DELETED", nodePod("a", "110", "10.0.0.1", true)), []string{"MODIFIED 10.0.9.9"}},
		"a pod that is ended": {podObjectEvent("MODIFIED", endedAt("a", "110")), []string{"MODIFIED 10.0.9.9"}},
		"a new pod":           {podObjectEvent("ADDED", nodePod("n", "110", "10.0.0.9", true)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startProxied(t, newSliceCloud())
				feed := p.opened(p.cloud.podFeeds)
				send(t, feed, tt.event)
				synctest.Wait()
				p.cloud.podFeeds <- feed
				p.lose()
				if got := watched(t, p.proxy, "web-1"); !slices.Equal(got, tt.want) {
					t.Errorf("the watch gets %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func endedAt(name, version string) *corev1.Pod {
	p := ended(name)
	p.ResourceVersion = version
	return p
}

func podObjectEvent(kind string, p *corev1.Pod) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, mustJSON(p))
}

// The DaemonSet's new pod reports while the cloud is away; the slice has the old one.
func TestEndpointsOfADaemonSetsNewPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newSliceCloud()
		cloud.pods = append(cloud.pods, nodePod("ds-old00", "52", "10.0.0.3", true, daemonSet("ds")))
		cloud.slices[0] = webSlice("90", webEndpoint("ds-old00", "10.0.0.3", true))
		p := startProxied(t, cloud)
		feed := p.opened(cloud.podFeeds)
		send(t, feed,
			podObjectEvent("DELETED", nodePod("ds-old00", "110", "10.0.0.3", true, daemonSet("ds"))),
			podObjectEvent("ADDED", nodePod("ds-new00", "111", "", false, daemonSet("ds"))))
		synctest.Wait()
		cloud.podFeeds <- feed
		p.lose()
		p.report(nodePod("ds-new00", "", "10.0.0.4", true, daemonSet("ds")))
		if got, want := watched(t, p.proxy, "web-1"), []string{"MODIFIED 10.0.9.9", "MODIFIED 10.0.0.4 10.0.9.9"}; !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
		if got := p.read(urlProxySlices, protobuf).Endpoints[0].TargetRef; got.Name != "ds-new00" || got.UID != "u-ds-new00" {
			t.Errorf("the endpoint's pod is %+v", got)
		}
	})
}

// Endpoints that other controllers write, and those of nodes that are not this one, stay.
func TestEndpointsThatAreNotTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newSliceCloud()
		cloud.slices[0].Labels[discoveryv1.LabelManagedBy] = "multus"
		p := startProxied(t, cloud)
		p.lose()
		p.report(nodePod("a", "", "10.0.0.7", false))
		if got := watched(t, p.proxy, "web-1"); len(got) != 0 {
			t.Errorf("the watch gets %q", got)
		}
		if got := p.read(urlProxySlices, protobuf); shownSlice(got) != "10.0.0.1 10.0.9.9" {
			t.Errorf("the list has %q", shownSlice(got))
		}
	})
}

// A node that has not read all its pods knows nothing of the endpoints of others.
func TestEndpointsStayWhereThePodsAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &proxied{t: t, cloud: newSliceCloud(), dir: filepath.Join(t.TempDir(), "cache")}
		p.start()
		p.read(urlProxySlices, protobuf)
		get(t, p.Cache, "/api/v1/namespaces/ns/pods/b")
		get(t, p.Cache, "/api/v1/namespaces/other/pods"+"?fieldSelector=spec.nodeName%3Dnode1")
		p.lose()
		if got := p.read(urlProxySlices, protobuf); shownSlice(got) != "10.0.0.1 10.0.9.9" {
			t.Errorf("the list has %q", shownSlice(got))
		}
	})
}

// Who has not read slices reads none; what is on disk is the cloud's.
func TestEndpointsGiveNobodyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud())
		ask(as(t.Context(), "other.token"), t, p.Cache, http.MethodGet, urlPods)
		p.lose()
		p.report(nodePod("a", "", "10.0.0.7", true))
		for _, url := range []string{urlSlices, urlProxySlices, urlSlice} {
			if got := ask(as(t.Context(), "other.token"), t, p.Cache, http.MethodGet, url); got != view.ErrNeverRead.Error() {
				t.Errorf("GET %s by another user: %s", url, got)
			}
		}
		if got := get(t, p.Cache, urlProxySlices); got != view.ErrNeverRead.Error() {
			t.Errorf("LIST by the node, which has read no slices: %s", got)
		}
		time.Sleep(10 * time.Second) // the disk has everything
		for _, v := range p.views.All() {
			if v.Key.Resource != "endpointslices" {
				continue
			}
			for _, name := range v.MemberNames() {
				e, _ := v.Member(name)
				if b, err := v.Read(name, e); err != nil || bytes.Contains(b, []byte("10.0.0.7")) {
					t.Errorf("cached is %s, %v", b, err)
				}
			}
		}
	})
}

func TestEndpointsAfterARestartOfTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newSliceCloud()
		p := startProxied(t, cloud, withPodServers)
		p.lose()
		p.report(nodePod("a", "", "10.0.0.7", true))
		time.Sleep(10 * time.Second)
		p.kubelet.stop()
		p.proxy.stop()
		p.stop()
		p.start()
		synctest.Wait()
		w := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+"&resourceVersion=100")
		synctest.Wait()
		if got, want := watched(t, w, "web-1"), []string{"MODIFIED 10.0.0.7 10.0.9.9"}; !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
		p.report(nodePod("a", "", "10.0.0.8", true))
		for _, accept := range []string{"application/json", protobuf} {
			if got := p.read(urlProxySlices, accept); shownSlice(got) != "10.0.0.8 10.0.9.9" {
				t.Errorf("the list has %q", shownSlice(got))
			}
			if got := p.readNamed(urlProxySlices, accept, "kubernetes"); shownSlice(got) != "169.254.2.1:10268" {
				t.Errorf("the apiservers' slice has %q", shownSlice(got))
			}
		}
	})
}

func withPodServers(o *Options) {
	o.PodServers = []netip.AddrPort{netip.MustParseAddrPort("[fd00::2:1]:10268"), netip.MustParseAddrPort("169.254.2.1:10268")}
}

func TestTheAPIServersSliceLeadsToTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud(), withPodServers)
		p.lose()
		const hub, cloud = "169.254.2.1:10268", "192.0.2.1:6443"
		if got := p.readNamed(urlProxySlices, protobuf, "kubernetes"); shownSlice(got) != hub {
			t.Errorf("the list has %q", shownSlice(got))
		}
		p.cloud.comeBack()
		time.Sleep(time.Second)
		p.lose()
		p.cloud.comeBack()
		feed, _ := p.resumed()
		send(t, feed, sliceEvent("MODIFIED", apiServerSlice("150")))
		synctest.Wait()
		if got, want := watched(t, p.proxy, "kubernetes"), []string{"MODIFIED " + hub, "MODIFIED " + cloud, "MODIFIED " + hub, "MODIFIED " + cloud, "MODIFIED " + cloud}; !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
		if got := p.readNamed(urlProxySlices, protobuf, "kubernetes"); shownSlice(got) != cloud {
			t.Errorf("online the list has %q", shownSlice(got))
		}
		if got := watched(t, p.proxy, "web-1"); len(got) != 0 {
			t.Errorf("of another slice the watch gets %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud())
		p.lose()
		if got := watched(t, p.proxy, "kubernetes"); len(got) != 0 {
			t.Errorf("where pods do not use the hub, the watch gets %q", got)
		}
	})
}

// kubelet reports at once what it sees that the cloud does not have, and the cloud's slices follow.
func TestEndpointsWhenTheCloudCatchesUp(t *testing.T) {
	for name, tt := range map[string]struct {
		offline *corev1.Pod // what kubelet reports in the outage
		want    []string    // what the watch gets after that
	}{
		"nothing has changed here": {nil, nil},
		"a pod has another address": {
			nodePod("a", "", "10.0.0.7", true), []string{"MODIFIED 10.0.0.7 10.0.9.9"},
		},
	} {
		for _, forgotten := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, relist %v", name, forgotten), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := startProxied(t, newSliceCloud(), withPodServers)
					p.lose()
					ip := "10.0.0.1"
					if tt.offline != nil {
						ip = tt.offline.Status.PodIP
						p.report(tt.offline)
					}
					// The cloud took the node for dead, and changed the other endpoint meanwhile.
					down := webSlice("200", webEndpoint("a", "10.0.0.1", false))
					down.Endpoints[1].Addresses = []string{"10.0.9.8"}
					p.cloud.set("210", down, otherSlice("91"), apiServerSlice("92"))
					if forgotten {
						p.cloud.on("watch", func(r *http.Request) *http.Response {
							if r.URL.Query().Get("resourceVersion") == "100" && strings.Contains(r.URL.Path, "slices") {
								return respond(http.StatusGone, "{}")
							}
							return p.cloud.follow(r)
						})
					}
					p.cloud.comeBack()
					feed, pods := p.resumed()
					send(t, pods, podObjectEvent("MODIFIED", nodePod("a", "150", "10.0.0.1", false)))
					if !forgotten {
						send(t, feed, sliceEvent("MODIFIED", down))
					}
					synctest.Wait()
					time.Sleep(time.Second)
					p.cloud.pods = []*corev1.Pod{nodePod("a", "400", ip, true)}
					p.report(nodePod("a", "", ip, true)) // kubelet, online
					up := webSlice("300", webEndpoint("a", ip, true))
					send(t, feed, sliceEvent("MODIFIED", up))
					time.Sleep(2 * time.Minute)
					want := append(slices.Clone(tt.want), "MODIFIED "+ip+" 10.0.9.8", "MODIFIED "+ip+" 10.0.9.9")
					if got := watched(t, p.proxy, "web-1"); !slices.Equal(got, want) {
						t.Errorf("the watch gets %q, want %q", got, want)
					}
					if n := p.cloud.count("watch"); n > 6 {
						t.Errorf("watches were opened %d times", n)
					}
				})
			})
		}
	}
}

// Whatever the cloud says, or does not say, after the time for it clients have its slices.
func TestEndpointsWhenTheCloudDoesNotCatchUp(t *testing.T) {
	const settled = localendpoints.SettleAfter
	down := webSlice("200", webEndpoint("a", "10.0.0.1", false))
	for name, tt := range map[string]struct {
		pod    *corev1.Pod // in kubelet's watch, after the return
		sent   string      // to kube-proxy's watch
		before []string
		after  []string
		within time.Duration
	}{
		"the pod was changed by the cloud":               {nodePod("a", "150", "10.0.0.1", false), "", nil, []string{"MODIFIED 10.0.0.1 10.0.9.9"}, settled},
		"the cloud took the node for dead":               {nodePod("a", "150", "10.0.0.1", false), sliceEvent("MODIFIED", down), []string{"MODIFIED 10.0.0.7 10.0.9.9"}, []string{"MODIFIED !10.0.0.1 10.0.9.9"}, settled},
		"the slice is gone":                              {nodePod("a", "150", "10.0.0.1", false), sliceEvent("DELETED", webSlice("200", webEndpoint("a", "10.0.0.1", false))), []string{"DELETED !10.0.0.1 10.0.9.9"}, nil, settled},
		"the endpoint is gone":                           {nodePod("a", "150", "10.0.0.1", false), sliceEvent("MODIFIED", webSlice("200")), []string{"MODIFIED 10.0.9.9"}, nil, settled},
		"a pod of the node that nobody here knows":       {nodePod("a", "150", "10.0.0.1", false), sliceEvent("MODIFIED", webSlice("200", webEndpoint("new", "10.0.0.20", true))), []string{"MODIFIED 10.0.0.20 10.0.9.9"}, nil, settled},
		"kubelet does not know that it has to report":    {nil, "", nil, []string{"MODIFIED 10.0.0.1 10.0.9.9"}, watch.SettleAfter + settled},
		"the same, and the cloud took the node for dead": {nil, sliceEvent("MODIFIED", down), []string{"MODIFIED 10.0.0.7 10.0.9.9"}, []string{"MODIFIED !10.0.0.1 10.0.9.9"}, watch.SettleAfter + settled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startProxied(t, newSliceCloud())
				p.lose()
				p.report(nodePod("a", "", "10.0.0.7", true))
				offline := []string{"MODIFIED 10.0.0.7 10.0.9.9"}
				p.cloud.comeBack()
				feed, pods := p.resumed()
				if tt.pod != nil {
					send(t, pods, podObjectEvent("MODIFIED", tt.pod))
				}
				send(t, feed, tt.sent)
				time.Sleep(tt.within - 2*time.Second)
				if got, want := watched(t, p.proxy, "web-1"), slices.Concat(offline, tt.before); !slices.Equal(got, want) {
					t.Errorf("until then the watch gets %q, want %q", got, want)
				}
				time.Sleep(10 * time.Second)
				if got, want := watched(t, p.proxy, "web-1"), slices.Concat(offline, tt.before, tt.after); !slices.Equal(got, want) {
					t.Errorf("in the end the watch gets %q, want %q", got, want)
				}
				if p.proxy.ended() {
					t.Error("the watch has ended")
				}
				select {
				case feed = <-p.cloud.sliceFeeds: // opened again to show what the cloud has
				default:
				}
				send(t, feed, sliceEvent("MODIFIED", webSlice("300", webEndpoint("a", "10.0.0.30", false))))
				synctest.Wait()
				if got, want := watched(t, p.proxy, "web-1"), "MODIFIED !10.0.0.30 10.0.9.9"; got[len(got)-1] != want {
					t.Errorf("later the watch gets %q, want %q", got, want)
				}
			})
		})
	}
}

// While the cloud catches up, kubelet reports to it: its slices follow.
func TestEndpointsFollowKubeletAfterTheReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud())
		p.lose()
		p.cloud.comeBack()
		feed, _ := p.resumed()
		p.report(nodePod("a", "", "10.0.0.1", false))
		send(t, feed, sliceEvent("MODIFIED", webSlice("200", webEndpoint("a", "10.0.0.1", false))))
		synctest.Wait()
		if got, want := watched(t, p.proxy, "web-1"), []string{"MODIFIED !10.0.0.1 10.0.9.9"}; !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
	})
}

// The cloud comes and goes: no address that works is withdrawn.
func TestEndpointsOverShortReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud())
		p.lose()
		p.report(nodePod("a", "", "10.0.0.7", true))
		for n := range 4 {
			p.cloud.set(fmt.Sprint(200+n), p.cloud.slices...)
			p.cloud.comeBack()
			feed, pods := p.resumed()
			send(t, pods, podObjectEvent("MODIFIED", nodePod("a", fmt.Sprint(150+n), "10.0.0.1", false)))
			send(t, feed, sliceEvent("MODIFIED", webSlice(fmt.Sprint(200+n), webEndpoint("a", "10.0.0.1", false))))
			synctest.Wait()
			p.cloud.sliceFeeds <- feed
			p.cloud.podFeeds <- pods
			time.Sleep(3 * time.Second)
			p.lose()
		}
		// Once in the first outage, and for each event of the cloud.
		if got, want := watched(t, p.proxy, "web-1"), slices.Repeat([]string{"MODIFIED 10.0.0.7 10.0.9.9"}, 5); !slices.Equal(got, want) {
			t.Errorf("the watch gets %q, want %q", got, want)
		}
		if got := p.read(urlProxySlices, protobuf); shownSlice(got) != "10.0.0.7 10.0.9.9" {
			t.Errorf("the list has %q", shownSlice(got))
		}
	})
}

// A client lists in the outage, and opens its watch after it.
func TestAWatchOpenedAfterTheReturnGetsTheCloudsEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud(), withPodServers)
		p.lose()
		p.report(nodePod("a", "", "10.0.0.7", true))
		p.read(urlProxySlices, "application/json")
		p.proxy.stop()
		p.cloud.comeBack()
		pods := p.opened(p.cloud.podFeeds)
		send(t, pods, podObjectEvent("MODIFIED", nodePod("a", "150", "10.0.0.1", false)))
		w := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+"&resourceVersion=100")
		time.Sleep(5 * time.Second)
		if got, want := watched(t, w, "kubernetes"), []string{"MODIFIED 192.0.2.1:6443"}; !slices.Equal(got, want) {
			t.Errorf("at once the watch gets %q, want %q", got, want)
		}
		if got := watched(t, w, "web-1"); len(got) != 0 {
			t.Errorf("at once the watch gets %q", got)
		}
		time.Sleep(20 * time.Second)
		if got, want := watched(t, w, "web-1"), []string{"MODIFIED 10.0.0.1 10.0.9.9"}; !slices.Equal(got, want) {
			t.Errorf("then the watch gets %q, want %q", got, want)
		}
	})
}

// A client whose watch cannot go on reads everything again, by WatchList.
func TestInitialEventsWhileTheCloudCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProxied(t, newSliceCloud())
		p.lose()
		p.cloud.comeBack()
		p.opened(p.cloud.sliceFeeds)
		w := startWatch(as(t.Context(), kubeProxy), t, p.Cache, watchSlices+listWatch)
		feed := p.opened(p.cloud.sliceFeeds)
		send(t, feed, sliceEvent("ADDED", webSlice("200", webEndpoint("a", "10.0.0.1", false))),
			`{"type":"BOOKMARK","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"210","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
		time.Sleep(5 * time.Second)
		want := []string{"ADDED 10.0.0.1 10.0.9.9"}
		if got := watched(t, w, "web-1"); !slices.Equal(got, want) {
			t.Errorf("initial events are %q, want %q", got, want)
		}
		time.Sleep(20 * time.Second)
		if got, want := watched(t, w, "web-1"), append(want, "MODIFIED !10.0.0.1 10.0.9.9"); !slices.Equal(got, want) {
			t.Errorf("then the watch gets %q, want %q", got, want)
		}
		for _, v := range p.views.All() { // it has the cloud's slices
			if v.Key.Labels != "" && v.Position() != "210" {
				t.Errorf("%s is at %s", v, v.Position())
			}
		}
	})
}
