package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// apiserver is as much of an apiserver as the controller talks to, with a clock that
// synctest moves. It is an http.RoundTripper, so the client is a real one, with its
// informers and retries. What it does can be made late, refused or lost.
type apiserver struct {
	t testing.TB

	mu      sync.Mutex // guards what follows
	version int
	objects map[string]map[string]object // by resource and "namespace/name"
	history map[string][]event           // by resource
	changed chan struct{}                // closed whenever anything changes
	life    int                          // of connections: a greater one ends the watches before
	oldest  int                          // a watch from an earlier version gets 410 Gone
	faults  faults
	open    map[string]int // watches, by resource
	// disturbed is when watches were last late, or ended.
	disturbed time.Time
	calls     []call
	asked     []*corev1.Pod // to be created as dry runs
	events    []corev1.Event
	// deleting is called before a pod is deleted for a client.
	deleting func(*corev1.Pod)
	// admitting returns what admission says of a new pod; nil is that it is admitted.
	admitting func(*corev1.Pod) error
	// mutating is what admission makes of a new pod.
	mutating func(*corev1.Pod)
	// patching is called before a pod is patched, and tried before that, also of a dry run: it returns what admission says, and may
	// change the pod.
	patching func(before, after *corev1.Pod)
	tried    func(before, after *corev1.Pod) error
	dryRuns  []*corev1.Pod // patches, as the pods would have become
}

// object is what the apiserver keeps.
type object interface {
	runtime.Object
	metav1.Object
}

type event struct {
	version int
	at      time.Time
	kind    string
	labels  labels.Set
	body    []byte
}

// faults are what goes wrong with requests of the controller.
type faults struct {
	// away fails all of them.
	away bool
	// late is the delay from a change to its watch event, by resource.
	late map[string]time.Duration
	// slow is how long a webhook takes to look at a dry run.
	slow time.Duration
	// answer, if not nil, returns what is answered in place of doing something.
	answer func(verb, resource, name string) error
}

// call is a request that was no watch.
type call struct {
	at             time.Time
	verb, resource string
	name           string
}

const namespace = "default"

var kinds = map[string]schema.GroupVersionKind{
	"daemonsets":          appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
	"statefulsets":        appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	"controllerrevisions": appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
	"pods":                corev1.SchemeGroupVersion.WithKind("Pod"),
	"nodes":               corev1.SchemeGroupVersion.WithKind("Node"),
	"events":              corev1.SchemeGroupVersion.WithKind("Event"),
}

func newAPIServer(t testing.TB) *apiserver {
	a := &apiserver{t: t, objects: map[string]map[string]object{}, history: map[string][]event{}, changed: make(chan struct{}), open: map[string]int{}}
	for resource := range kinds {
		a.objects[resource] = map[string]object{}
	}
	return a
}

func (a *apiserver) client() kubernetes.Interface {
	client, err := kubernetes.NewForConfigAndClient(
		&rest.Config{Host: "http://model", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}},
		&http.Client{Transport: a})
	if err != nil {
		a.t.Fatal(err)
	}
	return client
}

// with calls f with everything locked, and then notifies the watches.
func (a *apiserver) with(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.tellLocked()
}

func (a *apiserver) tellLocked() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// cut ends all watches. If relist is set, they cannot go on where they were.
func (a *apiserver) cut(relist bool) {
	a.with(func() {
		a.life++
		a.disturbed = time.Now()
		if relist {
			a.oldest = a.version + 1
		}
	})
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// putLocked makes or changes an object.
func (a *apiserver) putLocked(resource string, o object) object {
	o = o.DeepCopyObject().(object)
	kind := "MODIFIED"
	if _, ok := a.objects[resource][keyOf(o)]; !ok {
		kind = "ADDED"
	}
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	o.GetObjectKind().SetGroupVersionKind(kinds[resource])
	a.objects[resource][keyOf(o)] = o
	a.recordLocked(resource, kind, o)
	return o
}

func (a *apiserver) removeLocked(resource string, o object) {
	delete(a.objects[resource], keyOf(o))
	o = o.DeepCopyObject().(object)
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	a.recordLocked(resource, "DELETED", o)
}

func (a *apiserver) recordLocked(resource, kind string, o object) {
	a.history[resource] = append(a.history[resource], event{a.version, time.Now(), kind, o.GetLabels(), encode(o)})
	a.tellLocked()
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// latency is how long an answer takes.
const latency = 5 * time.Millisecond

func (a *apiserver) latencyOf(q *http.Request) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.URL.Query().Get("dryRun") != "" {
		return latency + a.faults.slow
	}
	return latency
}

var errAway = errors.New("connection refused")

// RoundTrip answers a request of the controller.
func (a *apiserver) RoundTrip(q *http.Request) (*http.Response, error) {
	var body []byte
	if q.Body != nil {
		body, _ = io.ReadAll(q.Body)
		_ = q.Body.Close()
	}
	select {
	case <-q.Context().Done():
		return nil, q.Context().Err()
	case <-time.After(a.latencyOf(q)):
	}
	parts := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	parts = parts[map[string]int{"api": 2, "apis": 3}[parts[0]]:]
	if parts[0] == "namespaces" {
		parts = parts[2:]
	}
	resource, name := parts[0], ""
	if len(parts) > 1 {
		name = parts[1]
	}
	if query := q.URL.Query(); q.Method == http.MethodGet && (resource == "pods" || resource == "controllerrevisions") && query.Get("labelSelector")+query.Get("fieldSelector") == "" {
		a.t.Errorf("GET %s reads more than what belongs to a workload that opted in", q.URL)
	}
	watch := q.URL.Query().Get("watch") == "true" || q.URL.Query().Get("watch") == "1"
	a.mu.Lock()
	defer a.mu.Unlock()
	if !watch {
		a.calls = append(a.calls, call{time.Now(), q.Method, strings.Join(append(parts[:1:1], parts[min(2, len(parts)):]...), "/"), name})
	}
	if a.faults.away {
		return nil, errAway
	}
	var (
		out any
		err error
	)
	if a.faults.answer != nil && !watch {
		err = a.faults.answer(q.Method, strings.Join(append(parts[:1:1], parts[min(2, len(parts)):]...), "/"), name)
	}
	if err == nil {
		switch {
		case watch:
			return a.watchLocked(q, resource)
		case q.Method == http.MethodGet:
			out = a.listLocked(resource, q.URL.Query())
		case q.Method == http.MethodPatch:
			out, err = a.patchLocked(resource, name, body, q.URL.Query().Get("dryRun") == metav1.DryRunAll)
		case q.Method == http.MethodDelete:
			out, err = a.deleteLocked(name, body)
		case resource == "pods":
			out, err = a.createLocked(q.URL.Query(), body)
		default:
			out, err = a.eventLocked(body)
		}
	}
	if err == nil {
		return answer(q, http.StatusOK, encode(out)), nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil, err // no answer at all
	}
	s := status.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	return answer(q, int(s.Code), encode(s)), nil
}

func answer(q *http.Request, code int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: q,
	}
}

func matching(query url.Values) (labels.Selector, fields.Selector) {
	byLabels, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		panic(err)
	}
	return byLabels, fields.ParseSelectorOrDie(query.Get("fieldSelector"))
}

func (a *apiserver) listLocked(resource string, query url.Values) any {
	byLabels, byFields := matching(query)
	items := []json.RawMessage{}
	for _, o := range a.objects[resource] {
		if byLabels.Matches(labels.Set(o.GetLabels())) && byFields.Matches(fieldsOf(o)) {
			items = append(items, encode(o))
		}
	}
	gvk := kinds[resource]
	return map[string]any{
		"kind": gvk.Kind + "List", "apiVersion": gvk.GroupVersion().String(),
		"metadata": metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}, "items": items,
	}
}

func (a *apiserver) patchLocked(resource, name string, patch []byte, dryRun bool) (any, error) {
	if resource == "events" {
		return a.eventLocked(patch)
	}
	key := namespace + "/" + name
	if resource == "nodes" {
		key = "/" + name
	}
	o, ok := a.objects[resource][key]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	}
	after, err := scheme.Scheme.New(kinds[resource])
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(encode(o), patch, after)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := json.Unmarshal(merged, after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if after.(object).GetUID() != o.GetUID() {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: resource}, name, errors.New("uid"))
	}
	if after.(object).GetResourceVersion() != o.GetResourceVersion() {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: resource}, name, errors.New("modified"))
	}
	if pod, ok := after.(*corev1.Pod); ok && a.tried != nil {
		if err := a.tried(o.(*corev1.Pod), pod); err != nil {
			return nil, err
		}
	}
	if dryRun {
		a.dryRuns = append(a.dryRuns, after.(*corev1.Pod))
		return after, nil
	}
	if pod, ok := after.(*corev1.Pod); ok && a.patching != nil {
		a.patching(o.(*corev1.Pod), pod)
	}
	return a.putLocked(resource, after.(object)), nil
}

func (a *apiserver) deleteLocked(name string, body []byte) (any, error) {
	pods := schema.GroupResource{Resource: "pods"}
	o, ok := a.objects["pods"][namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(pods, name)
	}
	var options metav1.DeleteOptions
	if err := json.Unmarshal(body, &options); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != o.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion() {
			return nil, apierrors.NewConflict(pods, name, errors.New("Precondition failed"))
		}
	}
	pod := o.DeepCopyObject().(*corev1.Pod)
	if a.deleting != nil && pod.DeletionTimestamp.IsZero() {
		a.deleting(pod)
	}
	a.endLocked(pod)
	return pod, nil
}

// endLocked marks a pod for deletion. A pod that no node runs is removed at once.
func (a *apiserver) endLocked(pod *corev1.Pod) {
	switch {
	case pod.Spec.NodeName == "":
		a.removeLocked("pods", pod)
	case pod.DeletionTimestamp.IsZero():
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		a.putLocked("pods", pod)
	}
}

func (a *apiserver) eventLocked(body []byte) (any, error) {
	var e corev1.Event
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	e.Kind, e.APIVersion = "Event", "v1"
	a.events = append(a.events, e)
	return e, nil
}

func (a *apiserver) watchLocked(q *http.Request, resource string) (*http.Response, error) {
	query := q.URL.Query()
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	byLabels, _ := matching(query)
	var first [][]byte
	if query.Get("sendInitialEvents") == "true" {
		from = a.version
		for _, o := range a.objects[resource] {
			if byLabels.Matches(labels.Set(o.GetLabels())) {
				first = append(first, watchEvent("ADDED", encode(o)))
			}
		}
		first = append(first, watchEvent("BOOKMARK", a.bookmarkLocked(resource)))
	} else if from < a.oldest {
		s := apierrors.NewResourceExpired("too old").Status()
		s.Kind, s.APIVersion = "Status", "v1"
		return answer(q, http.StatusGone, encode(s)), nil
	}
	r, w := io.Pipe()
	life := a.life
	a.open[resource]++
	go func() {
		defer func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.open[resource]--
		}()
		for _, b := range first {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
		w.CloseWithError(a.follow(q.Context(), w, resource, byLabels, from, life))
	}()
	response := answer(q, http.StatusOK, nil)
	response.Body = r
	return response, nil
}

func watchEvent(kind string, body []byte) []byte {
	return append(encode(map[string]any{"type": kind, "object": json.RawMessage(body)}), '\n')
}

func (a *apiserver) bookmarkLocked(resource string) []byte {
	gvk := kinds[resource]
	return encode(map[string]any{"kind": gvk.Kind, "apiVersion": gvk.GroupVersion().String(), "metadata": metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(a.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
}

// follow writes what happens from a version on, as late as it is to be.
func (a *apiserver) follow(ctx context.Context, w io.Writer, resource string, selector labels.Selector, from, life int) error {
	for seen := 0; ; {
		a.mu.Lock()
		var (
			due     [][]byte
			next    = time.Hour
			changed = a.changed
			over    = a.life != life
		)
		for ; seen < len(a.history[resource]); seen++ {
			e := a.history[resource][seen]
			if e.version <= from {
				continue
			}
			if wait := time.Until(e.at.Add(a.faults.late[resource])); wait > 0 {
				next = wait
				break
			}
			from = e.version
			if selector.Matches(e.labels) {
				due = append(due, watchEvent(e.kind, e.body))
			}
		}
		a.mu.Unlock()
		if over {
			return io.EOF
		}
		for _, b := range due {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-time.After(next):
		}
	}
}

// count returns how many requests there were since a time, by verb and resource.
func (a *apiserver) count(since time.Time, verb, resource string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, c := range a.calls {
		if !c.at.Before(since) && (verb == "" || c.verb == verb && c.resource == resource) {
			n++
		}
	}
	return n
}

// watches returns how many watches there are of pods and revisions.
func (a *apiserver) watches() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open["pods"] + a.open["controllerrevisions"]
}
