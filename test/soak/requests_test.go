package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// requestPeriod is the time between two requests that are no watches: 20 a second.
const requestPeriod = 50 * time.Millisecond

// leavePeriod is the time between two requests that are given up: a leak of a goroutine for each
// would be twenty times what is allowed in three minutes.
const leavePeriod = 200 * time.Millisecond

// A request that was under way when the link broke may end in one of two ways more. A write
// may have been carried out or not: 504 says so. What an answer has begun with has been
// passed on already, and it breaks off with the link, as it would without a hub.

// without describes what there is of an answer while the cloud is away.
type without int

const (
	always    without = iota // the same as ever: it is read from the cache
	unlessCut                // the same as ever, but for a request that was under way
	never                    // 503
)

// kind is a kind of request.
type kind struct {
	name    string
	weight  int // out of 20
	without without
	make    func(r *rand.Rand, n int) (*client, request)
	code    int
	check   func(body []byte) error // of an answer with that code; nil: none
}

// requests asks and writes, as pods and a kubelet do.
type requests struct {
	w     *world
	cuts  *cuts
	kinds []kind

	mu      sync.Mutex
	events  map[string]bool // by name: the ones that were taken
	total   map[string]int  // by kind
	refused map[string]int  // by kind: 503 that a client expects
	broken  map[string]int  // by kind: what was under way when the link broke
	slowest map[string]time.Duration
}

func newRequests(w *world, c *cuts) *requests {
	r := &requests{w: w, cuts: c, events: map[string]bool{}, total: map[string]int{}, refused: map[string]int{}, broken: map[string]int{}, slowest: map[string]time.Duration{}}
	r.kinds = r.all()
	r.prime()
	return r
}

// prime reads once what is to be read without the cloud.
func (r *requests) prime() {
	r.w.t.Helper()
	for _, k := range r.kinds {
		if k.without != always {
			continue
		}
		for n := range pods {
			c, req := k.make(rand.New(rand.NewPCG(uint64(n), 3)), n)
			if a := c.do(r.w.t.Context(), req); a.code != k.code {
				r.w.t.Fatalf("%s: %d %.300s, %v", k.name, a.code, a.body, a.err)
			}
		}
	}
}

func (r *requests) all() []kind {
	w := r.w
	const base = "/api/v1/namespaces/" + namespace
	node := "/api/v1/nodes/" + w.hub.Name
	lease := "/apis/coordination.k8s.io/v1/namespaces/" + leases + "/leases/" + w.hub.Name
	get := func(path string) request { return request{method: http.MethodGet, path: path} }
	status := map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Soak"}}}}
	return []kind{
		{"GET ConfigMap, a pod", 3, always, func(_ *rand.Rand, n int) (*client, request) {
			return w.pods[n%pods], get(base + "/configmaps/" + groupName(n%pods, 0))
		}, http.StatusOK, nil},
		{"LIST ConfigMaps, a pod", 2, always, func(_ *rand.Rand, n int) (*client, request) {
			return w.pods[n%pods], get(base + "/configmaps?labelSelector=" + groupLabel + "%3D" + accountName(n%pods))
		}, http.StatusOK, atLeast(perGroup)},
		{"GET pod, kubelet", 3, always, func(_ *rand.Rand, n int) (*client, request) {
			return w.node, get(base + "/pods/" + podName(n%pods))
		}, http.StatusOK, nil},
		{"LIST pods, kubelet", 1, always, func(*rand.Rand, int) (*client, request) {
			return w.node, get("/api/v1/pods?fieldSelector=spec.nodeName%3D" + w.hub.Name)
		}, http.StatusOK, atLeast(pods)},
		{"GET lease, kubelet", 1, always, func(*rand.Rand, int) (*client, request) { return w.node, get(lease) }, http.StatusOK, nil},
		{"LIST as a table, a pod", 1, never, func(_ *rand.Rand, n int) (*client, request) {
			req := get(base + "/services")
			req.accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
			return w.pods[n%pods], req
		}, http.StatusOK, nil},
		{"PATCH ConfigMap, a pod", 1, never, func(_ *rand.Rand, n int) (*client, request) {
			return w.pods[n%pods], request{method: http.MethodPatch, path: base + "/configmaps/" + groupName(n%pods, 1), content: "application/merge-patch+json",
				body: map[string]any{"data": map[string]string{"pod": podName(n % pods), "n": fmt.Sprint(n)}}}
		}, http.StatusOK, nil},
		{"PATCH pod status, kubelet", 2, unlessCut, func(_ *rand.Rand, n int) (*client, request) {
			return w.node, request{method: http.MethodPatch, path: base + "/pods/" + podName(n%pods) + "/status", content: "application/strategic-merge-patch+json",
				body: map[string]any{"status": map[string]any{"message": fmt.Sprint(n)}}}
		}, http.StatusOK, nil},
		{"PATCH node status, kubelet", 1, unlessCut, func(*rand.Rand, int) (*client, request) {
			return w.node, request{method: http.MethodPatch, path: node + "/status", content: "application/strategic-merge-patch+json", body: status}
		}, http.StatusOK, nil},
		{"PATCH lease, kubelet", 1, unlessCut, func(*rand.Rand, int) (*client, request) {
			return w.node, request{method: http.MethodPatch, path: lease, content: "application/merge-patch+json",
				body: map[string]any{"spec": map[string]any{"holderIdentity": w.hub.Name, "renewTime": metav1.NowMicro()}}}
		}, http.StatusOK, nil},
		{"POST event, kubelet", 2, unlessCut, func(_ *rand.Rand, n int) (*client, request) {
			return w.node, request{method: http.MethodPost, path: base + "/events", body: newEvent(n)}
		}, http.StatusCreated, r.took},
		{"POST token, kubelet", 2, unlessCut, func(_ *rand.Rand, n int) (*client, request) {
			return w.node, request{method: http.MethodPost, path: base + "/serviceaccounts/" + accountName(n%pods) + "/token",
				body: tokenRequest(podName(n%pods), w.pods[n%pods].uid)}
		}, http.StatusCreated, nil},
	}
}

func newEvent(n int) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("event-%d", n), Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: podName(n % pods)},
		Reason:         "Soak", Message: "an event that must arrive", Type: corev1.EventTypeNormal,
		FirstTimestamp: now, LastTimestamp: now, Count: 1, Source: corev1.EventSource{Component: "kubelet"},
	}
}

// run asks until ctx ends, and returns when everything is answered.
func (r *requests) run(ctx context.Context) error {
	var order []int
	for i, k := range r.kinds {
		order = append(order, slices.Repeat([]int{i}, k.weight)...)
	}
	random := rand.New(rand.NewPCG(4, 0))
	ticker := time.NewTicker(requestPeriod)
	defer ticker.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		k := r.kinds[order[random.IntN(len(order))]]
		c, req := k.make(random, n)
		all.Go(func() { r.judge(c, k, c.do(r.w.t.Context(), req)) })
	}
}

// leave makes requests that their clients give up: before the answer, in the middle of a list, or of
// a watch. Nothing may be left of them in the hub.
func (w *world) leave(ctx context.Context) error {
	const path = "/api/v1/namespaces/" + namespace + "/configmaps"
	random := rand.New(rand.NewPCG(5, 0))
	for n := 0; pause(ctx, leavePeriod); n++ {
		c, query := w.pods[random.IntN(pods)], ""
		if n%2 == 0 {
			query = "?watch=true&resourceVersion=0"
		}
		patient, leave := context.WithTimeout(ctx, time.Duration(1+random.IntN(100))*time.Millisecond)
		req, err := http.NewRequestWithContext(patient, http.MethodGet, c.base+path+query, http.NoBody)
		if err != nil {
			leave()
			return err
		}
		if res, err := c.http.Do(req); err == nil { // or it has left before
			_, _ = io.CopyN(io.Discard, res.Body, random.Int64N(5000))
			res.Body.Close()
		}
		leave()
	}
	return nil
}

// judge looks whether an answer is one that a client expects.
func (r *requests) judge(c *client, k kind, a answer) {
	took := a.ended.Sub(a.began)
	r.mu.Lock()
	r.total[k.name]++
	r.slowest[k.name] = max(r.slowest[k.name], took)
	r.mu.Unlock()
	switch {
	case a.err != nil && brokeOff(k, a) && r.cuts.brokeUnder(a.began, a.ended):
		r.count(r.broken, k)
	case a.err != nil:
		r.w.problems.add("no answer to "+k.name, "%s: after %s, cut: %t: %d, %v", c.name, took, r.cuts.touched(a.began, a.ended), a.code, a.err)
	case a.code == k.code:
		if k.check == nil {
			return
		}
		if err := k.check(a.body); err != nil {
			r.w.problems.add("a wrong answer to "+k.name, "%s: %v", c.name, err)
		}
	case (a.code == http.StatusServiceUnavailable || a.code == unavailable(k)) && r.expected(k, a):
		r.count(r.refused, k)
		r.readable(c, k, a)
	case a.code == http.StatusGatewayTimeout && k.without != always && r.cuts.brokeUnder(a.began, a.ended):
		r.count(r.broken, k)
		r.readable(c, k, a)
	default:
		r.w.problems.add(fmt.Sprintf("%d to %s", a.code, k.name), "%s: after %s, cut: %t: %.500s", c.name, took, r.cuts.touched(a.began, a.ended), a.body)
	}
}

func (r *requests) count(in map[string]int, k kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in[k.name]++
}

// readable looks whether a client can read why.
func (r *requests) readable(c *client, k kind, a answer) {
	if err := isStatus(a); err != nil {
		r.w.problems.add(fmt.Sprintf("a %d that no client can read, to %s", a.code, k.name), "%s: %v", c.name, err)
	}
}

// brokeOff reports whether an answer ended before it was whole, by the rules of HTTP/1.1 and HTTP/2.
// The server has not sent anything yet where the answer is small.
func brokeOff(k kind, a answer) bool {
	ended := errors.Is(a.err, io.ErrUnexpectedEOF) || errors.Is(a.err, io.EOF) || strings.Contains(a.err.Error(), "stream error")
	return ended && (a.code == k.code || a.code == 0)
}

// unavailable is the code without the cloud: a client that accepts only a table gets
// 406, because tables are not cached.
func unavailable(k kind) int {
	if strings.Contains(k.name, "as a table") {
		return http.StatusNotAcceptable
	}
	return http.StatusServiceUnavailable
}

// expected reports whether there may be a 503.
func (r *requests) expected(k kind, a answer) bool {
	switch k.without {
	case never:
		return r.cuts.touched(a.began, a.ended)
	case unlessCut:
		return r.cuts.brokeUnder(a.began, a.ended)
	}
	return false
}

// brokeUnder reports whether the link may have broken between two times.
func (c *cuts) brokeUnder(from, to time.Time) bool {
	return c.any(func(k cut) bool { return k.begin.Before(to) && (k.end.IsZero() || from.Before(k.end)) })
}

func isStatus(a answer) error {
	var status metav1.Status
	if err := json.Unmarshal(a.body, &status); err != nil {
		return fmt.Errorf("%w: %.300s", err, a.body)
	}
	again := a.header.Get("Retry-After") != ""
	if status.Kind != "Status" || int(status.Code) != a.code || status.Message == "" || again && a.code != http.StatusServiceUnavailable {
		return fmt.Errorf("Retry-After %q, %.300s", a.header.Get("Retry-After"), a.body)
	}
	return nil
}

// atLeast wants a list to have so many items.
func atLeast(n int) func([]byte) error {
	return func(body []byte) error {
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		if len(list.Items) < n {
			return fmt.Errorf("%d items at version %s; want %d", len(list.Items), list.ResourceVersion, n)
		}
		return nil
	}
}

// took notes an event that was taken: it has to arrive.
func (r *requests) took(body []byte) error {
	var event corev1.Event
	if err := json.Unmarshal(body, &event); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[event.Name] = true
	return nil
}

// eventsArrived looks whether all events that were taken are in the cloud.
func (r *requests) eventsArrived() {
	missing := map[string]bool{}
	arrived := func() bool {
		list, err := r.w.admin.CoreV1().Events(namespace).List(r.w.t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		missing = maps.Clone(r.events)
		for i := range list.Items {
			delete(missing, list.Items[i].Name)
		}
		return len(missing) == 0
	}
	if !r.w.within(2*patience, arrived) {
		r.w.problems.add("events that were taken and never arrived", "%d of %d, such as %q", len(missing), len(r.events), slices.Sorted(maps.Keys(missing))[0])
	}
}

func (r *requests) summary() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-30s %8s %8s %8s %9s\n", "request", "answered", "503", "broken", "slowest")
	for _, k := range r.kinds {
		fmt.Fprintf(&out, "%-30s %8d %8d %8d %9s\n", k.name, r.total[k.name], r.refused[k.name], r.broken[k.name], r.slowest[k.name].Round(time.Millisecond))
	}
	return out.String()
}
