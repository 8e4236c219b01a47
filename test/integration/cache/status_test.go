package cache

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// reportingPod is a pod of the hub's node, of which the kubelet reports the status.
type reportingPod struct {
	h       *hub
	s       *space
	path    string // of the pods of its namespace
	version string
	uid     types.UID
}

func newReportingPod(t *testing.T) *reportingPod {
	t.Helper()
	h, s := newHub(t), newSpace(t)
	s.pod(h.name, "p")
	pod, err := env.client.CoreV1().Pods(s.name).Patch(t.Context(), "p", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"a"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &reportingPod{h: h, s: s, path: "/api/v1/namespaces/" + s.name + "/pods", version: pod.ResourceVersion, uid: pod.UID}
}

// report is what a kubelet does when the pod's status has changed.
func (p *reportingPod) report(t *testing.T, phase corev1.PodPhase, ip string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"phase":%q,"podIP":%q,"podIPs":[{"ip":%q}]}}`, p.uid, phase, ip, ip)
	if a := p.h.node.send(t, http.MethodPatch, p.path+"/p/status", protobuf, strategic, body); a.status != http.StatusOK {
		t.Fatal(a)
	}
}

// is fails the test unless bytes that have a pod have this address.
func hasIP(t *testing.T, what string, body []byte, ip string) {
	t.Helper()
	if !bytes.Contains(body, []byte(ip)) {
		t.Errorf("%s does not have the address %s: %.600q", what, ip, body)
	}
}

// expect fails the test unless the next event is about the pod, and a bookmark follows at
// the resourceVersion of the watch.
func (p *reportingPod) expect(t *testing.T, w *stream, ip, version string) {
	t.Helper()
	e := w.expect(t, watch.Modified, "p")
	hasIP(t, "the event", e.raw, ip)
	if e.version != p.version {
		t.Errorf("the event is at version %s, the cached pod at %s", e.version, p.version)
	}
	if b := w.next(t); b.kind != watch.Bookmark || number(t, b.version) < number(t, version) {
		t.Errorf("after it comes %+v, want a bookmark at %s or later", b, version)
	}
}

// offline, what the node reports of a pod is in LIST, WATCH and GET, by all selectors that
// selected it with the cloud, and in all representations, for the node and for others who have read the pod.
func TestNodeStatus_IsInListWatchAndGet(t *testing.T) {
	t.Parallel()
	p := newReportingPod(t)
	h := p.h
	token := p.s.account("reader")
	selectors := map[string]struct {
		query string
		lists bool
	}{
		"all":         {"?", true},
		"by label":    {"?labelSelector=app%3Da", true},
		"by node":     {"?fieldSelector=spec.nodeName%3D" + h.name, true},
		"pending":     {"?fieldSelector=status.phase%3DPending", true},
		"running":     {"?fieldSelector=status.phase%3DRunning", false},
		"by address":  {"?fieldSelector=status.podIP%3D198.18.1.17", false},
		"other label": {"?labelSelector=app%3Db", false},
	}
	type held struct {
		stream  *stream
		version string
	}
	users := map[string]*client{"node": h.node, "account": h.as(token)}
	streams := map[string]held{}
	for user, c := range users {
		for name, sel := range selectors {
			for _, accept := range []string{protobuf, asJSON} {
				w := c.watch(t, with(p.path+sel.query, watchListQuery), accept)
				_, version := w.initial(t)
				streams[user+name+accept] = held{w, version}
			}
		}
		c.get(t, p.path+"/p", asJSON)
	}
	// What is read in one representation only is converted.
	only := h.node.get(t, "/api/v1/pods?fieldSelector=metadata.namespace%3D"+p.s.name, protobuf).listing(t)
	h.lose()
	before := map[string]string{} // versions of the lists, which stay
	for user, c := range users {
		for name, sel := range selectors {
			before[user+name] = c.get(t, p.path+sel.query, protobuf).listing(t).version
			before[user+name+asJSON] = c.get(t, p.path+sel.query, asJSON).listing(t).version
		}
	}
	p.report(t, corev1.PodRunning, "198.18.1.17")
	for user, c := range users {
		for name, sel := range selectors {
			for _, accept := range []string{protobuf, asJSON} {
				what := user + ", " + name + ", " + accept
				s := streams[user+name+accept]
				a := c.get(t, p.path+sel.query, accept)
				l, want := a.listing(t), before[user+name+accept]
				if accept == protobuf {
					want = before[user+name]
				}
				if _, ok := l.items[p.s.name+"/p"]; ok != sel.lists || l.version != want {
					t.Errorf("%s: the list at %s has %v, want at %s %v", what, l.version, l.items, want, sel.lists)
				}
				if sel.lists {
					hasIP(t, what, a.body, "198.18.1.17")
				}
				fresh := c.watch(t, with(p.path+sel.query, watchListQuery), accept)
				if items, version := fresh.initial(t); (items["p"] != "") != sel.lists || version != want {
					t.Errorf("%s: initial events are %v at %s", what, items, version)
				}
				if sel.lists {
					p.expect(t, s.stream, "198.18.1.17", s.version)
				}
			}
		}
		for _, accept := range []string{protobuf, asJSON} {
			hasIP(t, user+": GET", c.get(t, p.path+"/p", accept).body, "198.18.1.17")
		}
	}
	for _, accept := range []string{protobuf, asJSON} {
		a := h.node.get(t, "/api/v1/pods?fieldSelector=metadata.namespace%3D"+p.s.name, accept)
		if hasIP(t, "converted to "+accept, a.body, "198.18.1.17"); a.listing(t).version != only.version {
			t.Errorf("converted to %s: %v", accept, a)
		}
	}
	p.report(t, corev1.PodFailed, "198.18.1.18")
	for _, key := range []string{"all", "pending"} {
		s := streams["node"+key+protobuf]
		p.expect(t, s.stream, "198.18.1.18", s.version)
	}
	running := streams["node"+"running"+protobuf]
	running.stream.silent(t, quiet)
}
