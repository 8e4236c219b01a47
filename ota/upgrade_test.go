package ota

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

const upgradeWeb1 = "/openyurt.io/v1/namespaces/default/pods/web-1/upgrade"

var podResource = schema.GroupResource{Resource: "pods"}

// cloud is an apiserver as this package sees it, for what a real one cannot be
// made to do. What a real one does is tested against a real one.
type cloud struct {
	list, delete http.HandlerFunc
	cpus         string // that the node has for pods, of which it takes three

	mu      sync.Mutex
	lists   int
	deletes []metav1.DeleteOptions
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	if r.Method == http.MethodDelete {
		var options metav1.DeleteOptions
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &options)
		c.deletes = append(c.deletes, options)
	} else {
		c.lists++
	}
	c.mu.Unlock()
	switch {
	case r.Method == http.MethodDelete:
		c.delete(w, r)
	case r.URL.Path == "/api/v1/nodes/node-1":
		node := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(c.cpus), corev1.ResourcePods: resource.MustParse("3")}
		node.Labels = map[string]string{"disk": "ssd"}
		node.Spec.Taints = []corev1.Taint{{Key: "wet", Effect: corev1.TaintEffectNoSchedule}}
		sendJSON(w, http.StatusOK, node)
	default:
		c.list(w, r)
	}
}

// asked is what came in until now.
func (c *cloud) asked() (lists int, deletes []metav1.DeleteOptions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists, slices.Clone(c.deletes)
}

// start serves c, and the API in front of it with whatever else o has.
func (c *cloud) start(t *testing.T, o Options) (url string) {
	t.Helper()
	return serve(t, c.options(t, o))
}

// options serves c, and returns o with it.
func (c *cloud) options(t *testing.T, o Options) Options {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	pods, err := NewPods(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	o.NodeName, o.Pods = "node-1", pods
	return o
}

func sendJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func podList(pods ...*corev1.Pod) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for _, pod := range pods {
			list.Items = append(list.Items, *pod)
		}
		sendJSON(w, http.StatusOK, list)
	}
}

func refuse(err *apierrors.StatusError) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		status := err.ErrStatus
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		sendJSON(w, int(status.Code), status)
	}
}

// away is what the hub answers while no apiserver can be reached.
func away(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	refuse(apierrors.NewServiceUnavailable("no apiserver can be reached"))(w, r)
}

func accept(w http.ResponseWriter, _ *http.Request) {
	sendJSON(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

// hangUp ends the connection in the middle of the body.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, `{"kind":"PodList","items":[`)
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// slam ends the connection without an answer.
func slam(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func gatewayError(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "<html>\n502 Bad Gateway\n</html>", http.StatusBadGateway)
}

func TestUpgradeAnswers(t *testing.T) {
	forbidden := refuse(apierrors.NewForbidden(podResource, "web-1", io.EOF))
	tests := map[string]struct {
		list, delete http.HandlerFunc
		code         int
		says         string
	}{
		"a pod that needs it is upgraded":                      {podList(upgradable()), accept, 200, "Start updating pod default/web-1"},
		"the cloud is away":                                    {away, nil, 503, "no apiserver can be reached"},
		"the cloud goes away between reading and deleting":     {podList(upgradable()), away, 503, "again is safe"},
		"the cloud hangs up in the middle of the list":         {hangUp, nil, 503, "cannot be reached"},
		"the cloud hangs up without an answer to the list":     {slam, nil, 503, "cannot be reached"},
		"the cloud hangs up without an answer to the deletion": {podList(upgradable()), slam, 503, "again is safe"},
		"the cloud is too busy":                                {refuse(apierrors.NewTooManyRequests("later", 1)), nil, 503, "later"},
		"a gateway answers in place of the cloud":              {gatewayError, nil, 503, "cannot be reached"},
		"the cloud fails at listing":                           {refuse(apierrors.NewInternalError(io.ErrShortWrite)), nil, 500, "short write"},
		"the node may not list":                                {forbidden, nil, 500, "forbidden"},
		"the node may not delete":                              {podList(upgradable()), forbidden, 500, "forbidden"},
		"an answer that is no list at all":                     {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>please log in</html>") }, nil, 500, "look up pod default/web-1"},
		"the pod goes away between reading and deleting":       {podList(upgradable()), refuse(apierrors.NewNotFound(podResource, "web-1")), 404, "uid-1 was deleted by someone else"},
		"the pod is replaced between reading and deleting":     {podList(upgradable()), refuse(apierrors.NewConflict(podResource, "web-1", io.EOF)), 404, "uid-1 was deleted by someone else"},
		"no such pod": {podList(), nil, 404, "there is no pod default/web-1 on this node, node-1: GET /pods"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cloud{list: tt.list, delete: tt.delete}
			registry := prometheus.NewRegistry()
			var logged bytes.Buffer
			url := c.start(t, Options{Registerer: registry, Logger: slog.New(slog.NewTextHandler(&logged, nil))})

			call(t, "POST", url+upgradeWeb1).wants(t, tt.code, tt.says)
			if lists, deletes := c.asked(); lists != 1 || len(deletes) > 1 {
				t.Errorf("the cloud was asked for %d lists and %d deletions, want each once at most", lists, len(deletes))
			}
			if got := strings.Count(logged.String(), "\n"); got != 1 {
				t.Errorf("got %d lines in the log, want one:\n%s", got, logged.String())
			}
			if n := testutil.CollectAndCount(registry, "edgehub_ota_upgrades_total"); n != 1 {
				t.Errorf("got %d series, want one", n)
			}
		})
	}
}

func TestUpgradeIsLoggedAndCounted(t *testing.T) {
	c := &cloud{list: podList(upgradable()), delete: accept}
	registry := prometheus.NewRegistry()
	var logged bytes.Buffer
	url := c.start(t, Options{Registerer: registry, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	call(t, "POST", url+upgradeWeb1)

	for _, want := range []string{"pod=default/web-1", "uid=uid-1", "revision=new", "code=200"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("got log %q, want %s in it", logged.String(), want)
		}
	}
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP edgehub_ota_upgrades_total Requests to upgrade a pod, by the HTTP status code of the answer; 499 is a caller that hung up.
# TYPE edgehub_ota_upgrades_total counter
edgehub_ota_upgrades_total{code="200"} 1
`))
	if err != nil {
		t.Error(err)
	}
}

// What a deletion carries decides whether it can hit the wrong pod.
func TestDeletions(t *testing.T) {
	t.Run("the one that counts is for the pod that was read", func(t *testing.T) {
		c := &cloud{list: podList(upgradable()), delete: accept}
		call(t, "POST", c.start(t, Options{})+upgradeWeb1)
		_, deletes := c.asked()
		if len(deletes) != 1 {
			t.Fatalf("got %d deletions, want one", len(deletes))
		}
		d := deletes[0]
		if d.Preconditions == nil || d.Preconditions.UID == nil || *d.Preconditions.UID != "uid-1" {
			t.Errorf("got preconditions %v, want the UID uid-1", d.Preconditions)
		}
		if len(d.DryRun) != 0 || d.GracePeriodSeconds != nil {
			t.Errorf("got %+v, want neither dry run nor a grace period of our own", d)
		}
	})
}

// Many at once: the first deletes, and all others read what it did.
func TestUpgradeAtOnceDeletesOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		kind string
		then func(*corev1.Pod) // after the deletion
	}{
		"the pod ends":          {"DaemonSet", deleting},
		"the next pod is there": {"StatefulSet", func(pod *corev1.Pod) { pod.UID, pod.Status = "uid-2", corev1.PodStatus{} }},
	} {
		t.Run(name, func(t *testing.T) {
			upgradeAtOnce(t, upgradable(func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = tt.kind }), tt.then)
		})
	}
}

func upgradeAtOnce(t *testing.T, pod *corev1.Pod, then func(*corev1.Pod)) {
	t.Helper()
	var mu sync.Mutex
	c := &cloud{
		list: func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			p := pod.DeepCopy()
			mu.Unlock()
			podList(p)(w, r)
		},
		delete: func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			then(pod)
			mu.Unlock()
			accept(w, r)
		},
	}
	url := c.start(t, Options{})

	const callers = 20
	codes := make(chan int, callers) // one for each caller; never closed
	for range callers {
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url+upgradeWeb1, http.NoBody)
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				codes <- 0
				return
			}
			resp.Body.Close()
			codes <- resp.StatusCode
		}()
	}
	got := map[int]int{}
	for range callers {
		got[<-codes]++
	}
	if got[200] != 1 || got[403] != callers-1 {
		t.Errorf("got answers %v, want one 200 and %d times 403", got, callers-1)
	}
	if _, deletes := c.asked(); len(deletes) != 1 {
		t.Errorf("got %d deletions, want one", len(deletes))
	}
}

// silent is a network that swallows everything.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestSilentCloud(t *testing.T) {
	start := func(t *testing.T) http.Handler {
		pods, err := NewPods(&rest.Config{Host: "http://cloud.invalid", Transport: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { time.Sleep(cloudTimeout) }) // for lists that nobody waits for any more
		h, err := New(Options{NodeName: "node-1", Pods: pods})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	ask := func(ctx context.Context, h http.Handler, method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, http.NoBody))
		return w
	}

	for name, tt := range map[string]struct{ method, path string }{
		"upgrade ends in 503 after the time it is given": {"POST", upgradeWeb1},
		"pods ends in 503 after the time it is given":    {"GET", "/pods"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w := ask(t.Context(), start(t), tt.method, tt.path)
				if w.Code != http.StatusServiceUnavailable {
					t.Errorf("got %d %q, want 503", w.Code, w.Body)
				}
				if took := time.Since(began); took != cloudTimeout {
					t.Errorf("took %s, want %s", took, cloudTimeout)
				}
			})
		})
	}

	t.Run("a caller who hangs up is not mistaken for a cloud that is away", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if w := ask(ctx, start(t), "POST", upgradeWeb1); w.Code != statusClientGone {
				t.Errorf("got %d %q, want %d", w.Code, w.Body, statusClientGone)
			}
		})
	})

	t.Run("one who waits for another request gets 503 as well", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := start(t)
			codes := make(chan int, 2) // one for each caller; never closed
			for range 2 {
				go func() { codes <- ask(t.Context(), h, "POST", upgradeWeb1).Code }()
			}
			for range 2 {
				if code := <-codes; code != http.StatusServiceUnavailable {
					t.Errorf("got %d, want 503", code)
				}
			}
		})
	})
}
