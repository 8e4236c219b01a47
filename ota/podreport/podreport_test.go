package podreport_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/coreclient"
	"github.com/edgehub-io/edgehub/ota/nodepods"
	"github.com/edgehub-io/edgehub/ota/podreport"
)

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"1"}}`

// hub has one pod, which nothing changes.
type hub struct {
	mu   sync.Mutex
	sent []string // patches
}

func (h *hub) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.Reader(strings.NewReader(pod))
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPatch:
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		h.mu.Lock()
		h.sent = append(h.sent, string(text))
		h.mu.Unlock()
	case query.Get("watch") != "":
		initial := ""
		if query.Get("sendInitialEvents") != "" {
			initial = `{"type":"ADDED","object":` + pod + `}` +
				`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`
		}
		body = io.MultiReader(strings.NewReader(initial), untilDone{r.Context()})
	default:
		body = strings.NewReader(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` + pod + `]}`)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body), Request: r}, nil
}

func (h *hub) patches() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent
}

type untilDone struct{ ctx context.Context }

func (u untilDone) Read([]byte) (int, error) { <-u.ctx.Done(); return 0, io.EOF }

// Whoever may hold a pod may change its hold all the time: the cloud hears of it at once, and then now and then, and of the last.
func TestAPodIsReportedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{}
		client, err := coreclient.New(&rest.Config{Host: "http://hub", Transport: h})
		if err != nil {
			t.Fatal(err)
		}
		var value atomic.Int64
		source := func(*corev1.Pod) podreport.Report {
			return podreport.Report{Annotations: map[string]string{"hold": fmt.Sprint(value.Load())}}
		}
		pods, err := nodepods.New(client, "n1")
		if err != nil {
			t.Fatal(err)
		}
		r := podreport.New(client, pods, func() bool { return true }, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { pods.Run(ctx, func([]*corev1.Pod) { r.Changed() }) })
		all.Go(func() { r.Run(ctx, source) })
		defer all.Wait()
		defer cancel()
		time.Sleep(time.Second)
		if n := len(h.patches()); n != 1 {
			t.Fatalf("%d patches at first", n)
		}
		time.Sleep(time.Minute)
		before := len(h.patches())
		for range 1000 {
			value.Add(1)
			r.Changed()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(4 * time.Second)
		sent := h.patches()[before:]
		if len(sent) < 4 || len(sent) > 6 || !strings.Contains(sent[len(sent)-1], `"hold":"1000"`) {
			t.Errorf("1000 changes in 10s: %d patches: %s", len(sent), sent)
		}
	})
}
