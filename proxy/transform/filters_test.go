package transform_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/proxy/topology"
	"github.com/edgehub-io/edgehub/proxy/transform"
)

const (
	kubeProxy = "system:serviceaccount:kube-system:kube-proxy"
	coreDNS   = "system:serviceaccount:kube-system:coredns"
)

// tokenOf is a token that claims to be of a user.
func tokenOf(user string) string {
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return encode(`{"alg":"none"}`) + "." + encode(fmt.Sprintf(`{"sub":%q}`, user)) + "." + encode("signature")
}

// filters is a Transport with all filters of Services, for node n1 in pool p1 and zone z1.
type filters struct {
	t         *testing.T
	state     *topology.State
	transport *transform.Transport
	metrics   *prometheus.Registry
	mediaType string
	next      func(*http.Request) *http.Response
}

func newFilters(t *testing.T, mediaType string, next func(*http.Request) *http.Response) *filters {
	t.Helper()
	s := topology.New("n1", slog.New(slog.DiscardHandler))
	s.SetServices(nil, "100")
	s.SetNode(map[string]string{corev1.LabelTopologyZone: "z1", topology.PoolLabel: "p1"}, "50")
	s.SetMembers("p1", map[string]bool{"n1": true, "n3": true}, "60")
	f := &filters{t: t, state: s, mediaType: mediaType, next: next, metrics: prometheus.NewRegistry()}
	proxies := []string{"kube-system/kube-proxy"}
	f.transport = transform.New(roundTripper(func(r *http.Request) *http.Response { return f.next(r) }), transform.Options{
		IsNode:  func(context.Context) bool { return false },
		Account: identity.ClaimedAccount,
		Transforms: append(transforms(),
			transform.NewServiceTopology(s, []string{"kube-system/kube-proxy", "kube-system/coredns"}),
			transform.NewDiscardService(s, proxies), transform.NewNodePortIsolation(s, proxies),
			transform.NewClusterIP(s, proxies, hubServers, derived.LeadBareToHub)),
		Topology: s, Registerer: f.metrics, Logger: slog.New(slog.DiscardHandler),
	})
	return f
}

// annotate has the topology know a Service.
func (f *filters) annotate(service, key, value string, version int) {
	namespace, name, _ := strings.Cut(service, "/")
	f.state.SetService(types.NamespacedName{Namespace: namespace, Name: name}, topology.ServiceOf(corev1.ServiceTypeNodePort, func(k string) (string, bool) {
		return value, k == key && value != ""
	}), fmt.Sprint(version))
}

func slicesInfo(verb string) request.RequestInfo {
	return request.RequestInfo{Verb: verb, APIGroup: "discovery.k8s.io", Resource: "endpointslices", Path: "/apis/discovery.k8s.io/v1/endpointslices"}
}

func servicesInfo(verb string) request.RequestInfo {
	return request.RequestInfo{Verb: verb, Resource: "services", Path: "/api/v1/services"}
}

// send sends a request of a user. query may be empty.
func (f *filters) send(user string, info request.RequestInfo, query string) *http.Response {
	f.t.Helper()
	info.IsResourceRequest, info.APIVersion = true, "v1"
	r, err := http.NewRequestWithContext(request.WithRequestInfo(f.t.Context(), &info), http.MethodGet, "http://apiserver"+info.Path+"?"+query, http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+tokenOf(user))
	res, err := f.transport.RoundTrip(r)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { res.Body.Close() })
	return res
}

// list reads a list, and returns its items as itemsOf does.
func (f *filters) list(user string, info request.RequestInfo) (items []string, body []byte) {
	f.t.Helper()
	res := f.send(user, info, "")
	body = readAll(f.t, res)
	if res.ContentLength >= 0 && int64(len(body)) != res.ContentLength {
		f.t.Errorf("%d bytes, Content-Length %d", len(body), res.ContentLength)
	}
	return itemsOf(f.t, decode(f.t, f.mediaType, body)), body
}

// itemsOf describes objects: a Service by its name, a slice by its name and endpoints' nodes.
func itemsOf(t *testing.T, o runtime.Object) (items []string) {
	t.Helper()
	switch o := o.(type) {
	case *discoveryv1.EndpointSliceList:
		for i := range o.Items {
			items = append(items, itemsOf(t, &o.Items[i])...)
		}
	case *corev1.ServiceList:
		for i := range o.Items {
			items = append(items, itemsOf(t, &o.Items[i])...)
		}
	case *corev1.Service:
		items = append(items, o.Namespace+"/"+o.Name)
	case *discoveryv1.EndpointSlice:
		text := o.Namespace + "/" + o.Name
		for _, e := range o.Endpoints {
			if o.Name == "kubernetes" {
				text += fmt.Sprintf(" %s:%d", strings.Join(e.Addresses, "+"), *o.Ports[0].Port)
				continue
			}
			node := "-"
			if e.NodeName != nil {
				node = *e.NodeName
			}
			text += " " + node
		}
		items = append(items, text)
	default:
		t.Fatalf("a %T", o)
	}
	return items
}

// A token that nobody has vouched for has nothing read as the node, and its request waits for nothing.
func TestARefusedRequestWaitsForNoTopology(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFilters(t, "application/json", nil)
		s := topology.New("n1", slog.New(slog.DiscardHandler)) // nothing is known yet
		f.transport = transform.New(roundTripper(func(r *http.Request) *http.Response { return f.next(r) }), transform.Options{
			IsNode:     func(context.Context) bool { return false },
			Account:    identity.ClaimedAccount,
			Transforms: []transform.Transform{transform.NewServiceTopology(s, []string{"kube-system/kube-proxy"})},
			Topology:   s, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		})
		wanted := func() bool {
			select {
			case <-s.Wanted():
				return true
			default:
				return false
			}
		}
		for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable, http.StatusOK} {
			began := time.Now()
			f.next = func(r *http.Request) *http.Response {
				if wanted() {
					t.Errorf("the topology is read before %d", code)
				}
				if waited := time.Since(began); waited > 0 {
					t.Errorf("the request is sent after %v, and refused with %d", waited, code)
				}
				return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}
			}
			f.send(kubeProxy, slicesInfo("list"), "")
			if accepted := code == http.StatusOK; wanted() != accepted || time.Since(began) > 0 != accepted {
				t.Errorf("after %d, the topology is read: %t, and the answer took %v", code, wanted(), time.Since(began))
			}
		}
	})
}

// slice has an endpoint on each of four nodes, and one on none.
func slice(namespace, service string, version int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: service + "-x", ResourceVersion: fmt.Sprint(version),
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80))}},
	}
	for i, zone := range []string{"z1", "z1", "z9", "z9"} {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, NodeName: new(fmt.Sprintf("n%d", i+1)), Zone: &zone,
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "endpoints"},
		})
	}
	s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"192.0.2.1"}})
	return s
}

func sliceList(version int, slices ...*discoveryv1.EndpointSlice) *discoveryv1.EndpointSliceList {
	l := &discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}}
	l.ResourceVersion = fmt.Sprint(version)
	for _, s := range slices {
		one := *s.DeepCopy()
		one.TypeMeta = metav1.TypeMeta{}
		l.Items = append(l.Items, one)
	}
	return l
}

func annotatedService(name string, kind corev1.ServiceType, version int, annotations map[string]string) *corev1.Service {
	s := service("a", name)
	s.Annotations, s.Spec.Type, s.ResourceVersion = annotations, kind, fmt.Sprint(version)
	return s
}

func serviceList(version int, services ...*corev1.Service) *corev1.ServiceList {
	l := &corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}}
	l.ResourceVersion = fmt.Sprint(version)
	for _, s := range services {
		one := *s.DeepCopy()
		one.TypeMeta = metav1.TypeMeta{}
		l.Items = append(l.Items, one)
	}
	return l
}

// answering answers every request with one object.
func answering(t *testing.T, mediaType string, o runtime.Object) func(*http.Request) *http.Response {
	t.Helper()
	return answeringBytes(mediaType, encode(t, mediaType, o))
}

func answeringBytes(mediaType string, body []byte) func(*http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		return &http.Response{
			StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {mediaType}},
			Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		}
	}
}

func wantItems(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// wholeSlice is how itemsOf describes a slice that is not filtered.
const wholeSlice = " n1 n2 n3 n4 -"

func TestASlicesEndpointsAreThoseThatItsServiceAsksFor(t *testing.T) {
	for _, mediaType := range encodings {
		t.Run(mediaType, func(t *testing.T) {
			f := newFilters(t, mediaType, answering(t, mediaType, sliceList(99,
				slice("a", "node", 70), slice("a", "zone", 71), slice("a", "pool", 72), slice("a", "wrong", 73), slice("a", "plain", 74), slice("b", "node", 75))))
			unfiltered, before := f.list(kubeProxy, slicesInfo("list"))
			if len(unfiltered) != 6 {
				t.Fatalf("got %q", unfiltered)
			}
			f.annotate("a/node", topology.KeysAnnotation, "kubernetes.io/hostname", 101)
			f.annotate("a/zone", topology.KeysAnnotation, "topology.kubernetes.io/zone", 102)
			f.annotate("a/pool", topology.KeysAnnotation, "openyurt.io/nodepool", 103)
			f.annotate("a/wrong", topology.KeysAnnotation, "kubernetes.io/hostname; openyurt.io/nodepool", 104)
			for _, user := range []string{kubeProxy, coreDNS} {
				got, body := f.list(user, slicesInfo("list"))
				wantItems(t, got, "a/node-x n1", "a/zone-x n1 n2", "a/pool-x n1 n3", "a/wrong-x"+wholeSlice, "a/plain-x"+wholeSlice, "b/node-x"+wholeSlice)
				want := decode(t, mediaType, before).(*discoveryv1.EndpointSliceList)
				want.Items[0].Endpoints = want.Items[0].Endpoints[:1]
				want.Items[1].Endpoints = want.Items[1].Endpoints[:2]
				want.Items[2].Endpoints = append(want.Items[2].Endpoints[:1:1], want.Items[2].Endpoints[2])
				have := decode(t, mediaType, body).(*discoveryv1.EndpointSliceList)
				for i := range want.Items {
					if filtered := i < 3; filtered == (have.Items[i].ResourceVersion == want.Items[i].ResourceVersion) {
						t.Errorf("%s has version %s of %s", have.Items[i].Name, have.Items[i].ResourceVersion, want.Items[i].ResourceVersion)
					}
					have.Items[i].ResourceVersion = want.Items[i].ResourceVersion
				}
				if got, wanted := encode(t, mediaType, have), encode(t, mediaType, want); !bytes.Equal(got, wanted) {
					t.Errorf("something else has changed:\n%q\n%q", got, wanted)
				}
			}
			for _, user := range []string{"system:serviceaccount:kube-system:other", "system:serviceaccount:a:kube-proxy", "kube-system/kube-proxy", "alice", ""} {
				if _, body := f.list(user, slicesInfo("list")); !bytes.Equal(body, before) {
					t.Errorf("%s is filtered, too", user)
				}
			}
		})
	}
}

func TestAFilteredSliceHasAVersionOfItsOwn(t *testing.T) {
	f := newFilters(t, runtime.ContentTypeJSON, answering(t, runtime.ContentTypeJSON, slice("a", "s", 70)))
	version := func(value string) string {
		f.annotate("a/s", topology.KeysAnnotation, value, 101)
		info := slicesInfo("get")
		info.Namespace, info.Name = "a", "s-x"
		return decode(t, f.mediaType, readAll(t, f.send(kubeProxy, info, ""))).(*discoveryv1.EndpointSlice).ResourceVersion
	}
	seen := map[string]string{}
	for _, value := range []string{"", "kubernetes.io/hostname", "kubernetes.io/zone", "openyurt.io/nodepool"} {
		v := version(value)
		if other, ok := seen[v]; ok {
			t.Errorf("%q and %q have version %s", value, other, v)
		}
		seen[v] = value
		var n int
		if _, err := fmt.Sscan(v, &n); err != nil || n > 70 || n < 1 {
			t.Errorf("version %s would have a client miss what came before", v)
		}
		if again := version(value); again != v {
			t.Errorf("%q has versions %s and %s", value, v, again)
		}
	}
}

func TestServicesThatAreNotForThisNodeAreNotRead(t *testing.T) {
	discarded := map[string]string{topology.DiscardAnnotation: "true"}
	isolated := map[string]string{topology.ListenAnnotation: "-p1,*"}
	for _, mediaType := range encodings {
		t.Run(mediaType, func(t *testing.T) {
			f := newFilters(t, mediaType, answering(t, mediaType, serviceList(99,
				annotatedService("plain", corev1.ServiceTypeNodePort, 70, nil),
				annotatedService("discarded", corev1.ServiceTypeLoadBalancer, 71, discarded),
				annotatedService("no-balancer", corev1.ServiceTypeClusterIP, 72, discarded),
				annotatedService("isolated", corev1.ServiceTypeNodePort, 73, isolated),
				annotatedService("no-port", corev1.ServiceTypeClusterIP, 74, isolated),
				annotatedService("listens", corev1.ServiceTypeNodePort, 75, map[string]string{topology.ListenAnnotation: "p1"}),
			)))
			got, _ := f.list(kubeProxy, servicesInfo("list"))
			wantItems(t, got, "a/plain", "a/no-balancer", "a/no-port", "a/listens")
			if got, _ := f.list(coreDNS, servicesInfo("list")); len(got) != 6 {
				t.Errorf("CoreDNS resolves %q", got)
			}
			f.next = answering(t, mediaType, annotatedService("discarded", corev1.ServiceTypeLoadBalancer, 71, discarded))
			info := servicesInfo("get")
			info.Namespace, info.Name = "a", "discarded"
			res := f.send(kubeProxy, info, "")
			if body := readAll(t, res); res.StatusCode != http.StatusNotFound || !strings.Contains(string(body), `services \"discarded\" not found`) {
				t.Errorf("got %d: %s", res.StatusCode, body)
			}
		})
	}
}

func TestAnEmptySliceIsStillRead(t *testing.T) {
	for _, mediaType := range encodings {
		one := slice("a", "s", 70)
		one.Endpoints = one.Endpoints[1:]
		f := newFilters(t, mediaType, answering(t, mediaType, sliceList(99, one)))
		f.annotate("a/s", topology.KeysAnnotation, "kubernetes.io/hostname", 101)
		got, _ := f.list(kubeProxy, slicesInfo("list"))
		wantItems(t, got, "a/s-x")
	}
}

// One author's objects must not keep kube-proxy from reading those of others.
func TestWhatCannotBeFilteredPasses(t *testing.T) {
	good := encode(t, runtime.ContentTypeJSON, sliceList(99, slice("a", "s", 70), slice("b", "s", 71)))
	for name, body := range map[string][]byte{
		"an endpoint of another type":     bytes.Replace(good, []byte(`"nodeName":"n1"`), []byte(`"nodeName":{"x":1}`), 1),
		"endpoints that are no list":      bytes.Replace(good, []byte(`"endpoints":[`), []byte(`"endpoints":7,"other":[`), 1),
		"a list that is cut":              good[:len(good)-20],
		"no JSON at all":                  []byte("<html>"),
		"a list of more than the maximum": append(bytes.TrimSuffix(bytes.TrimSpace(good), []byte("}")), []byte(`,"x":"`+strings.Repeat("x", 64<<20)+`"}`)...),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFilters(t, runtime.ContentTypeJSON, answeringBytes(runtime.ContentTypeJSON, body))
			f.annotate("a/s", topology.KeysAnnotation, "kubernetes.io/hostname", 101)
			res := f.send(kubeProxy, slicesInfo("list"), "")
			got := readAll(t, res)
			if res.StatusCode != http.StatusOK || !bytes.Equal(got, body) {
				t.Errorf("%d: %d bytes of %d", res.StatusCode, len(got), len(body))
			}
			f.annotate("a/s", topology.KeysAnnotation, "", 102)
			f.annotate("b/s", topology.KeysAnnotation, "kubernetes.io/hostname", 103)
			if strings.HasPrefix(name, "an endpoint") {
				items := readAll(t, f.send(kubeProxy, slicesInfo("list"), ""))
				if !bytes.Contains(items, []byte(`"nodeName":{"x":1}`)) || bytes.Count(items, []byte(`"10.0.0.2"`)) != 1 {
					t.Errorf("the other slice is not filtered: %s", items)
				}
			}
		})
	}
}

func TestALongListIsFiltered(t *testing.T) {
	const n = 5000
	for _, mediaType := range encodings {
		var all []*discoveryv1.EndpointSlice
		for i := range n {
			all = append(all, slice("a", fmt.Sprintf("s%d", i), 100+i))
		}
		f := newFilters(t, mediaType, answering(t, mediaType, sliceList(9999, all...)))
		for i := 0; i < n; i += 2 {
			f.annotate(fmt.Sprintf("a/s%d", i), topology.KeysAnnotation, "kubernetes.io/hostname", 20000+i)
		}
		got, _ := f.list(kubeProxy, slicesInfo("list"))
		for i, item := range got {
			if want := fmt.Sprintf("a/s%d-x", i) + []string{" n1", wholeSlice}[i%2]; item != want {
				t.Fatalf("got %q, want %q", item, want)
			}
		}
		if len(got) != n {
			t.Errorf("%d slices", len(got))
		}
	}
}

func TestAnotherFormOfAnObjectPasses(t *testing.T) {
	for name, body := range map[string]string{
		"a Table":  `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":[],"rows":[]}`,
		"metadata": `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[{"metadata":{"namespace":"a","name":"s","annotations":{"svc.openyurt.io/discard":"true"}}}]}`,
	} {
		f := newFilters(t, runtime.ContentTypeJSON, answeringBytes(runtime.ContentTypeJSON, []byte(body)))
		if got := readAll(t, f.send(kubeProxy, servicesInfo("list"), "")); string(got) != body {
			t.Errorf("%s: %s", name, got)
		}
	}
}
