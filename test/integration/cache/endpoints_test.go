package cache

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// servedPod is a pod of the hub's node behind a Service, whose slice the cluster's own controller
// writes. A kubelet watches the node's pods, and a kube-proxy the slices.
type servedPod struct {
	h     *hub
	s     *space
	proxy *client
	uid   types.UID
	path  string // of the slices, as kube-proxy selects them
	held  []*endpointStream
}

// endpointStream is a watch of kube-proxy in one encoding.
type endpointStream struct {
	*stream
	accept  string
	version string // of the last bookmark
	seen    []string
}

func newServedPod(t *testing.T) *servedPod {
	t.Helper()
	h, s := newHub(t), newSpace(t)
	ctx := t.Context()
	h.makeNode() // the cloud makes no endpoints of pods without a node
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := env.client.CoreV1().Services(s.name).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.pod(h.name, "p")
	pod, err := env.client.CoreV1().Pods(s.name).Patch(ctx, "p", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"web"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := &servedPod{
		h: h, s: s, uid: pod.UID, proxy: h.as(s.account("kube-proxy")),
		path: "/apis/discovery.k8s.io/v1/namespaces/" + s.name + "/endpointslices?labelSelector=%21service.kubernetes.io%2Fheadless",
	}
	h.node.watch(t, "/api/v1/pods?fieldSelector=spec.nodeName%3D"+h.name+"&"+watchListQuery, protobuf).initial(t)
	p.report(t, "198.18.9.1", true)
	poll.Until(t, patience, "the cloud has the endpoint", func() bool { return p.cloud(t) == "198.18.9.1" })
	p.proxy.get(t, p.path, protobuf)
	for _, accept := range []string{protobuf, asJSON} {
		w := &endpointStream{stream: p.proxy.watch(t, p.path+"&"+watchListQuery, accept), accept: accept}
		_, w.version = w.initial(t)
		p.held = append(p.held, w)
	}
	return p
}

// report is what kubelet does when the status of the pod has changed.
func (p *servedPod) report(t *testing.T, ip string, ready bool) {
	t.Helper()
	body := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":%s}`, p.uid, statusOf(ip, ready))
	if a := p.h.node.send(t, http.MethodPatch, "/api/v1/namespaces/"+p.s.name+"/pods/p/status", protobuf, mergePatch, body); a.status != http.StatusOK {
		t.Fatal(a)
	}
}

func statusOf(ip string, ready bool) string {
	condition := corev1.ConditionFalse
	if ready {
		condition = corev1.ConditionTrue
	}
	return fmt.Sprintf(`{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}],"conditions":[{"type":"Ready","status":%q}]}`, ip, ip, condition)
}

// cloud returns the addresses of the slice in the cloud.
func (p *servedPod) cloud(t *testing.T) string {
	t.Helper()
	all, err := env.client.DiscoveryV1().EndpointSlices(p.s.name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Items) != 1 {
		return fmt.Sprintf("%d slices", len(all.Items))
	}
	return addresses(&all.Items[0])
}

// addresses are those of a slice, with "!" before one that is not ready.
func addresses(s *discoveryv1.EndpointSlice) string {
	var all []string
	for _, e := range s.Endpoints {
		address := strings.Join(e.Addresses, "+")
		if e.Conditions.Ready == nil || !*e.Conditions.Ready {
			address = "!" + address
		}
		all = append(all, address)
	}
	return strings.Join(all, " ")
}

// follow reads the next events of a watch until one has these addresses.
func (w *endpointStream) follow(t *testing.T, want string) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case e := <-w.events:
			w.take(t, e)
			if len(w.seen) > 0 && w.seen[len(w.seen)-1] == want {
				return
			}
		case <-deadline:
			t.Fatalf("not within %v: %s: the watch gets %q, seen are %q", patience, w.accept, want, w.seen)
		}
	}
}

// take notes an event.
func (w *endpointStream) take(t *testing.T, e event) {
	t.Helper()
	switch {
	case e.err != nil || e.kind == watch.Error:
		t.Fatalf("%s: the watch has ended: %+v", w.accept, e)
	case e.kind == watch.Bookmark:
		w.version = e.version
	case e.kind == watch.Deleted:
		w.seen = append(w.seen, "DELETED")
	default:
		encoding := wire.JSON
		if w.accept == protobuf {
			encoding = wire.Protobuf
		}
		w.seen = append(w.seen, addresses(decodeEvent(t, encoding, e.raw)))
	}
}

func decodeEvent(t *testing.T, e wire.Encoding, frame []byte) *discoveryv1.EndpointSlice {
	t.Helper()
	frames, err := wire.NewFrameReader(strings.NewReader(string(frame)), e, wire.FrameOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := frames.Next()
	if err != nil {
		t.Fatal(err)
	}
	return decodeAs[*discoveryv1.EndpointSlice](t, answer{body: f.Object})
}

// reads fails the test unless lists and new watches have these addresses, in both encodings.
func (p *servedPod) reads(t *testing.T, want string) {
	t.Helper()
	for _, accept := range []string{protobuf, asJSON} {
		list := decodeAs[*discoveryv1.EndpointSliceList](t, p.proxy.get(t, p.path, accept))
		if len(list.Items) != 1 || addresses(&list.Items[0]) != want {
			t.Errorf("%s: the list has %+v, want %s", accept, list.Items, want)
		}
		fresh := &endpointStream{stream: p.proxy.watch(t, p.path+"&"+watchListQuery, accept), accept: accept}
		fresh.follow(t, want)
		if fresh.stop(); len(fresh.seen) != 1 {
			t.Errorf("%s: initial events are %q", accept, fresh.seen)
		}
	}
}

// offline, Services follow this node's pods: in LIST, WATCH and WatchList, in both encodings.
func TestEndpoints_FollowThePodsOfTheNode(t *testing.T) {
	t.Parallel()
	p := newServedPod(t)
	other := p.h.as(p.s.account("other"))
	other.get(t, p.s.path, asJSON)
	p.h.lose()
	p.reads(t, "198.18.9.1")
	for _, step := range []struct {
		ip    string
		ready bool
		want  string
	}{
		{"198.18.9.1", false, "!198.18.9.1"},
		{"198.18.9.1", true, "198.18.9.1"},
		{"198.18.9.2", true, "198.18.9.2"},
	} {
		p.report(t, step.ip, step.ready)
		for _, w := range p.held {
			w.follow(t, step.want)
		}
		p.reads(t, step.want)
	}
	p.h.awaitDisk()
	p.h.kill()
	p.h.start()
	p.reads(t, "198.18.9.2")
	w := &endpointStream{stream: p.proxy.watch(t, p.path+"&"+watchQuery+"&resourceVersion="+p.held[0].version, protobuf), accept: protobuf}
	p.report(t, "198.18.9.3", true)
	w.follow(t, "198.18.9.3")

	// Whoever has read no slices reads none.
	other.get(t, p.s.path, asJSON)
	other.refused(t, request{path: p.path, accept: asJSON}, http.StatusServiceUnavailable)
	p.h.node.refused(t, request{path: p.path, accept: asJSON}, http.StatusServiceUnavailable)
}

// while the node was away, the cloud took its pods for dead: nothing that works is withdrawn when
// the cloud is back, whether kubelet reports soon or not.
func TestEndpoints_DoNotFlapAtTheReturn(t *testing.T) {
	t.Parallel()
	for name, reports := range map[string]bool{"kubelet reports": true, "kubelet does not report": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newServedPod(t)
			p.h.lose()
			p.report(t, "198.18.9.2", true)
			for _, w := range p.held {
				w.follow(t, "198.18.9.2")
			}
			// As the node lifecycle controller does.
			dead := fmt.Appendf(nil, `{"status":%s}`, statusOf("198.18.9.1", false))
			if _, err := env.client.CoreV1().Pods(p.s.name).Patch(t.Context(), "p", types.MergePatchType, dead, metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}
			poll.Until(t, patience, "the cloud's endpoint is not ready", func() bool { return p.cloud(t) == "!198.18.9.1" })
			p.h.connect()
			for _, w := range p.held {
				w.follow(t, "198.18.9.2")
			}
			final := "!198.18.9.1"
			if reports {
				p.report(t, "198.18.9.2", true)
				poll.Until(t, patience, "the cloud's endpoint is ready", func() bool { return p.cloud(t) == "198.18.9.2" })
				final = "198.18.9.2"
			}
			all, err := env.client.DiscoveryV1().EndpointSlices(p.s.name).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range p.held {
				for last := ""; last != all.Items[0].ResourceVersion; {
					e := w.next(t)
					w.take(t, e)
					if e.kind != watch.Bookmark {
						last = e.version // the cloud's own slice has its version
					}
				}
				if last := w.seen[len(w.seen)-1]; last != final {
					t.Errorf("%s: in the end the watch gets %q, want %q", w.accept, last, final)
				}
				shown := slices.Clone(w.seen)
				if !reports {
					shown = shown[:len(shown)-1]
				}
				if i := slices.IndexFunc(shown, func(s string) bool { return s != "198.18.9.2" }); i >= 0 {
					t.Errorf("%s: the address was withdrawn: %q", w.accept, w.seen)
				}
			}
		})
	}
}
