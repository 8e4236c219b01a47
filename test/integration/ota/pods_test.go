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

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// TestPodsAreWatchedOverACutLink follows the pods of one app while the link to the cloud is cut, and comes back.
func TestPodsAreWatchedOverACutLink(t *testing.T) {
	t.Parallel()
	a := startAway(t)
	for _, name := range []string{"watched", "other"} {
		a.create(name, "app.invalid/app:v1")
	}
	before := a.pods(2)["watched"]
	const query = "?labelSelector=app%3Dwatched"
	poll.Eventually(t, "the hub lists the pod", func() bool { names, _ := a.list(query); return slices.Equal(names, []string{before.Name}) })
	if names, since := a.list("?fieldSelector=metadata.name!%3D" + before.Name); len(names) != 1 || since != "" {
		t.Errorf("with a field selector: %v, offline since %q", names, since)
	}
	seen := a.watch(query + "&watch=true")
	seen.await("ADDED " + before.Name)

	a.must(a.hub.Link.Refuse())
	a.hub.Link.Reset()
	a.awaitOffline()
	if names, since := a.list(query); !slices.Equal(names, []string{before.Name}) || since == "" {
		t.Errorf("offline: %v, since %q", names, since)
	}
	a.reportStatus(before, "of the node, offline")
	seen.await("MODIFIED " + before.Name + " of the node, offline")
	end(t, a.admin, before.Name)
	after := a.pods(2)["watched"]
	if after.UID == before.UID {
		t.Fatalf("the pod was not replaced in the cloud")
	}
	if strings.Contains(seen.String(), after.Name) {
		t.Errorf("it is known without the cloud: %s", seen)
	}

	a.must(a.hub.Link.Up())
	seen.await("DELETED " + before.Name)
	seen.await("ADDED " + after.Name)
	poll.Eventually(t, "the hub is online", func() bool { _, since := a.list(query); return since == "" })
	_, err := a.admin.CoreV1().Pods(namespace).Patch(t.Context(), after.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"no-more"}}}`), metav1.PatchOptions{})
	a.must(err)
	seen.await("DELETED " + after.Name)
	if strings.Contains(seen.String(), "other") {
		t.Errorf("what was not asked for: %s", seen)
	}
}

// list returns the names of the pods that match, and since when the node has been offline, or "".
func (a *away) list(query string) (names []string, since string) {
	a.Helper()
	res := a.get(a.Context(), query)
	defer res.Body.Close()
	var list corev1.PodList
	a.must(json.NewDecoder(res.Body).Decode(&list))
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names, res.Header.Get(nodeapi.OfflineSinceHeader)
}

func (a *away) get(ctx context.Context, query string) *http.Response {
	a.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.hub.API+nodeapi.Pods+query, http.NoBody)
	a.must(err)
	res, err := http.DefaultTransport.RoundTrip(req)
	a.must(err)
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		a.Fatalf("GET /pods%s: %s", query, res.Status)
	}
	return res
}

// reportStatus has kubelet report a pod's status to the hub.
func (a *away) reportStatus(pod *corev1.Pod, message string) {
	a.Helper()
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"message":%q}}`, pod.UID, message)
	url := a.hub.Plain + "/api/v1/namespaces/" + pod.Namespace + "/pods/" + pod.Name + "/status"
	req, err := http.NewRequestWithContext(a.Context(), http.MethodPatch, url, strings.NewReader(patch))
	a.must(err)
	req.Header.Set("Content-Type", string(types.StrategicMergePatchType))
	res, err := http.DefaultTransport.RoundTrip(req)
	a.must(err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		a.Fatalf("PATCH of the status: %s", res.Status)
	}
}

// seen are the lines of a watch, as TYPE NAME MESSAGE, the last of the status.
type seen struct {
	*testing.T
	mu    sync.Mutex
	lines []string
}

// watch follows the pods until the test ends.
func (a *away) watch(query string) *seen {
	a.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, res, ended := &seen{T: a.T}, a.get(ctx, query), make(chan struct{})
	go func() {
		defer close(ended)
		defer res.Body.Close()
		for lines := json.NewDecoder(res.Body); ; {
			var e struct {
				Type   string
				Object corev1.Pod
			}
			if err := lines.Decode(&e); err != nil {
				if ctx.Err() == nil {
					a.Errorf("the watch has ended: %v", err)
				}
				return
			}
			s.mu.Lock()
			s.lines = append(s.lines, fmt.Sprintf("%s %s %s", e.Type, e.Object.Name, e.Object.Status.Message))
			s.mu.Unlock()
		}
	}()
	a.Cleanup(func() { cancel(); <-ended })
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
