package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// programVariable makes the test binary edgehubctl itself.
const programVariable = "EDGEHUBCTL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// fakeHub answers as a hub does, in the words that a test gives it: the client's odd
// cases are answers that a real one does not give at will.
type fakeHub struct {
	address string

	mu sync.Mutex // guards what follows
	// answers are by method and path. One that has several gives each once, and the
	// last from then on.
	answers  map[string][]http.HandlerFunc
	requests []string
}

func newFakeHub(t *testing.T) *fakeHub {
	h := &fakeHub{answers: map[string][]http.HandlerFunc{}}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.address = server.Listener.Addr().String()
	return h
}

func (h *fakeHub) on(method, path string, answers ...http.HandlerFunc) *fakeHub {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[method+" "+path] = answers
	return h
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Method + " " + r.URL.RequestURI()
	h.mu.Lock()
	h.requests = append(h.requests, key)
	answers := h.answers[key]
	if len(answers) > 1 {
		h.answers[key] = answers[1:]
	}
	h.mu.Unlock()
	switch {
	case len(answers) > 0:
		answers[0](w, r)
	case slices.Contains([]string{api.ImagePulls, api.Upgrades, api.Node, api.Cache}, r.URL.Path): // of which there is nothing to say
		fmt.Fprint(w, "{}")
	default:
		http.Error(w, "no such path: "+key, http.StatusNotFound)
	}
}

func (h *fakeHub) count(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(h.requests), func(s string) bool { return s != key }))
}

func answersWith(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, text)
	}
}

func sends(v any) http.HandlerFunc {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return answersWith(http.StatusOK, string(body))
}

// breaksOff sends some text and cuts the connection.
func breaksOff(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, text)
		_ = http.NewResponseController(w).Flush() // else it is the client's to notice
		panic(http.ErrAbortHandler)
	}
}

// hangs answers nothing, or nothing more, until the client is gone.
func hangs(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, text)
		_ = http.NewResponseController(w).Flush() // else it is the client's to notice
		<-r.Context().Done()
	}
}

// hurried is for tests that play in a moment what takes a person a while.
func hurried() timing { return timing{pace: 10 * time.Millisecond, settle: 60 * time.Millisecond} }

// result is how a command ended.
type result struct {
	code     int
	out, err string
}

// edgehubctl runs a command line against the fake hub.
func (h *fakeHub) edgehubctl(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, append([]string{"--address", h.address}, args...), &out, &errs, hurried())
	return result{code, out.String(), errs.String()}
}

// is compares output whole.
func (r result) is(t *testing.T, code int, out, err string) {
	t.Helper()
	if r.code != code {
		t.Errorf("got exit code %d, want %d", r.code, code)
	}
	if r.out != out {
		t.Errorf("on stdout:\n%s\nwant\n%s", r.out, out)
	}
	if r.err != err {
		t.Errorf("on stderr:\n%s\nwant\n%s", r.err, err)
	}
}

// has looks for parts of the output; "" wants nothing there.
func (r result) has(t *testing.T, code int, out, err string) {
	t.Helper()
	if r.code != code {
		t.Errorf("got exit code %d, want %d", r.code, code)
	}
	if !strings.Contains(r.out, out) || (out == "") != (r.out == "") {
		t.Errorf("on stdout: %q, want %q in it", r.out, out)
	}
	if !strings.Contains(r.err, err) || (err == "") != (r.err == "") {
		t.Errorf("on stderr: %q, want %q in it", r.err, err)
	}
}

var start = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)

const mib = 1 << 20

const (
	oldRevision = "5d8f"
	newRevision = "7c9b"
	upgradeOf   = "/openyurt.io/v1/namespaces/shop/pods/web-1/upgrade"
	pullOf      = "/openyurt.io/v1/namespaces/shop/pods/web-1/imagepull"
	watchOf     = pullOf + "?watch=true"
)

// pod is one of a DaemonSet that runs and is Ready.
func pod(namespace, name, revision string, change ...func(*corev1.Pod)) corev1.Pod {
	yes := true
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name),
		Labels:          map[string]string{appsv1.ControllerRevisionHashLabelKey: revision},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "web", UID: "ds", Controller: &yes}},
	}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Spec.Containers = []corev1.Container{{Name: "web", Image: "registry.example.com/shop/web:v1"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func condition(of corev1.PodConditionType, status corev1.ConditionStatus, reason, revision string, ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: of, Status: status, Reason: reason, Message: api.Message(revision),
			LastTransitionTime: metav1.NewTime(time.Now().Add(-ago)),
		})
	}
}

// needs marks a pod as the controller does.
func needs(status corev1.ConditionStatus, revision string) func(*corev1.Pod) {
	return condition(api.NeedCondition, status, "", revision, 3*time.Hour+5*time.Second)
}

// images marks a pod as the hub does.
func images(status corev1.ConditionStatus, reason, revision string) func(*corev1.Pod) {
	return condition(api.ImageCondition, status, reason, revision, time.Minute)
}

func podList(pods ...corev1.Pod) http.HandlerFunc { return sends(corev1.PodList{Items: pods}) }

// imagePull is a pre-pull for pod shop/web-1.
func imagePull(state api.PullState, images ...api.Image) api.ImagePull {
	return api.ImagePull{Namespace: "shop", Pod: "web-1", UID: "uid-web-1", Revision: newRevision, State: state, Images: images}
}

func image(name string, state api.PullState, done, total int64, change ...func(*api.Image)) api.Image {
	i := api.Image{Image: name, State: state, BytesDone: done, BytesTotal: total, Attempts: 1}
	for _, c := range change {
		c(&i)
	}
	return i
}

func failing(reason, text string, retry time.Duration) func(*api.Image) {
	return func(i *api.Image) {
		i.Reason, i.LastError = reason, text
		if retry > 0 {
			at := time.Now().Add(retry)
			i.NextRetry = &at
		}
	}
}

// lines is what a watch sends.
func lines(states ...api.ImagePull) string {
	var out strings.Builder
	for _, s := range states {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		out.Write(append(b, '\n'))
	}
	return out.String()
}
