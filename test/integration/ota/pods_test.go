package ota

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// TestPodsAreWatchedOverACutLink follows the pods of one app while the link to the cloud is cut, and comes back.
func TestPodsAreWatchedOverACutLink(t *testing.T) {
	t.Parallel()
	e := startEdge(t)
	for _, name := range []string{"watched", "other"} {
		e.create(name)
	}
	before := e.pods(2)["watched"]
	const query = "?labelSelector=app%3Dwatched"
	poll.Eventually(t, "the hub lists the pod", func() bool { names, _ := e.list(query); return slices.Equal(names, []string{before.Name}) })
	seen := e.watch(query + "&watch=true")
	seen.await("ADDED " + before.Name)

	e.cut()
	if names, since := e.list(query); !slices.Equal(names, []string{before.Name}) || since == "" {
		t.Errorf("offline: %v, since %q", names, since)
	}
	e.reportStatus(before, "of the node, offline")
	seen.await("MODIFIED " + before.Name + " of the node, offline")
	end(t, before.Name)
	after := e.pods(2)["watched"]
	if after.UID == before.UID {
		t.Fatalf("the pod was not replaced in the cloud")
	}
	if strings.Contains(seen.String(), after.Name) {
		t.Errorf("it is known without the cloud: %s", seen)
	}

	must(t, e.hub.Link.Up())
	seen.await("DELETED " + before.Name)
	seen.await("ADDED " + after.Name)
	poll.Eventually(t, "the hub is online", func() bool { _, since := e.list(query); return since == "" })
	_, err := env.admin.CoreV1().Pods(namespace).Patch(t.Context(), after.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"no-more"}}}`), metav1.PatchOptions{})
	must(t, err)
	seen.await("DELETED " + after.Name)
	if strings.Contains(seen.String(), "other") {
		t.Errorf("what was not asked for: %s", seen)
	}
}

// list returns the names of the pods that match, and since when the node has been offline, or "".
func (e *edge) list(query string) (names []string, since string) {
	e.Helper()
	res := e.get(e.Context(), query)
	defer res.Body.Close()
	var list corev1.PodList
	must(e.T, json.NewDecoder(res.Body).Decode(&list))
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names, res.Header.Get(api.OfflineSinceHeader)
}

func (e *edge) get(ctx context.Context, query string) *http.Response {
	e.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.hub.API+api.Pods+query, http.NoBody)
	must(e.T, err)
	res, err := http.DefaultTransport.RoundTrip(req)
	must(e.T, err)
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		e.Fatalf("GET /pods%s: %s", query, res.Status)
	}
	return res
}

// reportStatus has kubelet report a pod's status to the hub.
func (e *edge) reportStatus(pod *corev1.Pod, message string) {
	e.Helper()
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"message":%q}}`, pod.UID, message)
	url := e.hub.Plain + "/api/v1/namespaces/" + pod.Namespace + "/pods/" + pod.Name + "/status"
	req, err := http.NewRequestWithContext(e.Context(), http.MethodPatch, url, strings.NewReader(patch))
	must(e.T, err)
	req.Header.Set("Content-Type", string(types.StrategicMergePatchType))
	res, err := http.DefaultTransport.RoundTrip(req)
	must(e.T, err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		e.Fatalf("PATCH of the status: %s", res.Status)
	}
}

// seen are the lines of a watch, as TYPE NAME MESSAGE, the last of the status.
type seen struct {
	*testing.T
	mu    sync.Mutex
	lines []string
}

// watch follows the pods until the test ends.
func (e *edge) watch(query string) *seen {
	e.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, res, ended := &seen{T: e.T}, e.get(ctx, query), make(chan struct{})
	go func() {
		defer close(ended)
		defer res.Body.Close()
		for lines := json.NewDecoder(res.Body); ; {
			var event struct {
				Type   string
				Object corev1.Pod
			}
			if err := lines.Decode(&event); err != nil {
				if ctx.Err() == nil {
					e.Errorf("the watch has ended: %v", err)
				}
				return
			}
			s.mu.Lock()
			s.lines = append(s.lines, fmt.Sprintf("%s %s %s", event.Type, event.Object.Name, event.Object.Status.Message))
			s.mu.Unlock()
		}
	}()
	e.Cleanup(func() { cancel(); <-ended })
	return s
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// await returns once there is a line that begins with these words.
func (s *seen) await(words string) {
	s.Helper()
	poll.Eventually(s.T, "the watch has "+words, func() bool { return strings.Contains("\n"+s.String(), "\n"+words) })
}
