package certificate

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// watch is an open watch of a node's pods.
type watch struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when it has

	mu     sync.Mutex
	events []string // TYPE name
	err    error
}

// watch begins where a list has ended, and lasts until the test does.
func (n *node) watch(c *caller) *watch {
	n.t.Helper()
	list := c.get(n.t, n.podsPath())
	var of corev1.PodList
	if err := json.Unmarshal([]byte(list.body), &of); err != nil || list.code != http.StatusOK {
		n.t.Fatalf("list: %v", list)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	res, err := c.open(ctx, http.MethodGet, n.podsPath()+"&watch=true&allowWatchBookmarks=true&resourceVersion="+of.ResourceVersion, "")
	if err != nil || res.StatusCode != http.StatusOK {
		cancel()
		n.t.Fatalf("watch: %v, %v", res, err)
	}
	w := &watch{cancel: cancel, ended: make(chan struct{})}
	go w.read(res.Body)
	n.t.Cleanup(func() { cancel(); <-w.ended })
	return w
}

func (w *watch) read(body io.ReadCloser) {
	defer close(w.ended)
	defer body.Close()
	for decoder := json.NewDecoder(bufio.NewReader(body)); ; {
		var event struct {
			Type   string
			Object struct {
				metav1.ObjectMeta `json:"metadata"`
			}
		}
		err := decoder.Decode(&event)
		w.mu.Lock()
		if err == nil {
			w.events = append(w.events, event.Type+" "+event.Object.Name)
		}
		w.err = err
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// expect waits for an event, and fails if the watch has ended.
func (w *watch) expect(t *testing.T, event string) {
	t.Helper()
	poll.Eventually(t, "the watch has "+event, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.err != nil {
			t.Fatalf("the watch has ended: %v, after %v", w.err, w.events)
		}
		return slices.Contains(w.events, event)
	})
}

// steady sends requests all the time, and fails if one is not answered 200.
func (n *node) steady(callers ...*caller) (stop func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	var all sync.WaitGroup
	var mu sync.Mutex
	sent, wrong := 0, []answer(nil)
	for _, c := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				a := c.get(n.t, n.podsPath())
				mu.Lock()
				sent++
				if a.code != http.StatusOK || !strings.Contains(a.body, `"app"`) {
					wrong = append(wrong, a)
				}
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	return func() {
		n.t.Helper()
		cancel()
		all.Wait()
		if len(wrong) > 0 || sent == 0 {
			n.t.Errorf("%d of %d requests went wrong, the first: %v", len(wrong), sent, wrong[:min(1, len(wrong))])
		}
	}
}
