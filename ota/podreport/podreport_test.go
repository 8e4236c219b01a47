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

// hub has one pod, which nothing changes: each patch is lost.
type hub struct {
	mu     sync.Mutex
	sent   []string // patches
	refuse bool
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
		refuse := h.refuse
		h.mu.Unlock()
		if refuse {
			body := io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"a policy","code":403}`))
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
		}
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

// run runs a test with a Reporter of a hub, in a synctest bubble.
func run(t *testing.T, h *hub, source podreport.Source, log io.Writer, test func(r *podreport.Reporter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client, err := coreclient.New(&rest.Config{Host: "http://hub", Transport: h})
		if err != nil {
			t.Fatal(err)
		}
		pods, err := nodepods.New(client, "n1")
		if err != nil {
			t.Fatal(err)
		}
		r := podreport.New(client, pods, func() bool { return true }, slog.New(slog.NewTextHandler(log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { pods.Run(ctx, func([]*corev1.Pod) { r.Changed() }) })
		all.Go(func() { r.Run(ctx, source) })
		defer all.Wait()
		defer cancel()
		time.Sleep(time.Second)
		test(r)
	})
}

// Whoever may hold a pod may change its hold all the time: the cloud hears of it at once, and then now and then, and of the last.
func TestAPodIsReportedNowAndThen(t *testing.T) {
	h := &hub{}
	var value atomic.Int64
	source := func(*corev1.Pod) podreport.Report {
		return podreport.Report{Annotations: map[string]string{"hold": fmt.Sprint(value.Load())}}
	}
	run(t, h, source, io.Discard, func(r *podreport.Reporter) {
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
		if len(sent) < 4 || len(sent) > 7 || !strings.Contains(sent[len(sent)-1], `"hold":"1000"`) {
			t.Errorf("1000 changes in 10s: %d patches: %s", len(sent), sent)
		}
	})
}

func condition(*corev1.Pod) podreport.Report {
	return podreport.Report{Conditions: []corev1.PodCondition{{Type: "PodImageReady", Status: corev1.ConditionTrue, Reason: "PrepullReady"}}}
}

// A patch may be lost with the cloud, after which only the watch of the pod shows that.
func TestAPatchThatIsLostIsRepeated(t *testing.T) {
	h := &hub{}
	run(t, h, condition, io.Discard, func(r *podreport.Reporter) {
		for range 100 { // something else changes all the time
			r.Changed()
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(h.patches()); n < 2 || n > 3 {
			t.Errorf("%d patches in 11 seconds", n)
		}
	})
}

// A hold may end between the question and the request.
func TestWhatIsNoMoreToBeReportedIsNotSent(t *testing.T) {
	h := &hub{}
	var asked atomic.Int64
	source := func(*corev1.Pod) podreport.Report {
		if asked.Add(1) == 1 {
			return podreport.Report{Annotations: map[string]string{"hold": "yes"}}
		}
		return podreport.Report{}
	}
	run(t, h, source, io.Discard, func(*podreport.Reporter) {
		time.Sleep(time.Minute)
		if sent := h.patches(); len(sent) != 0 {
			t.Errorf("sent: %q", sent)
		}
	})
}

// What is sent counts, and not what was to be sent before.
func TestWhatHasChangedSinceItWasSentIsSentSoon(t *testing.T) {
	h := &hub{}
	var asked atomic.Int64
	source := func(*corev1.Pod) podreport.Report {
		value := "first"
		if asked.Add(1) == 2 {
			value = "second"
		}
		return podreport.Report{Annotations: map[string]string{"hold": value}}
	}
	run(t, h, source, io.Discard, func(r *podreport.Reporter) {
		r.Changed()
		time.Sleep(4 * time.Second)
		sent := h.patches()
		if len(sent) != 2 || !strings.Contains(sent[0], "second") || !strings.Contains(sent[1], "first") {
			t.Errorf("sent: %q", sent)
		}
	})
}

func TestWhatIsRefusedIsSentLessAndLessOften(t *testing.T) {
	h := &hub{refuse: true}
	var log strings.Builder
	var value atomic.Int64
	source := func(*corev1.Pod) podreport.Report {
		return podreport.Report{Annotations: map[string]string{"hold": fmt.Sprint(value.Load())}}
	}
	run(t, h, source, &log, func(r *podreport.Reporter) {
		for range 3600 {
			value.Add(1) // what is to be sent does not matter
			r.Changed()
			time.Sleep(time.Second)
		}
		if n := len(h.patches()); n < 10 || n > 25 {
			t.Errorf("%d patches in an hour", n)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines of log:\n%s", n, log.String())
		}
		before := len(h.patches())
		r.CloudReturned()
		time.Sleep(time.Second)
		if n := len(h.patches()) - before; n != 1 {
			t.Errorf("%d patches when the cloud has returned", n)
		}
	})
}

func TestPatchesOfConditions(t *testing.T) {
	for name, tt := range map[string]struct {
		has, want corev1.ConditionStatus
		patch     string
	}{
		"the pod has it":           {"True", "True", ""},
		"the pod has another":      {"False", "True", `{"metadata":{"uid":"u"},"status":{"conditions":[{"type":"C","status":"True","lastProbeTime":null,"lastTransitionTime":null}]}}`},
		"it goes":                  {"False", "", `{"metadata":{"uid":"u"},"status":{"conditions":[{"$patch":"delete","type":"C"}]}}`},
		"there is none, as wanted": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			pod.UID = "u"
			if tt.has != "" {
				pod.Status.Conditions = []corev1.PodCondition{{Type: "C", Status: tt.has}}
			}
			report := podreport.Report{Conditions: []corev1.PodCondition{{Type: "C", Status: tt.want}}}
			if got := string(podreport.Patch(pod, []podreport.Report{report}, time.Time{})); got != tt.patch {
				t.Errorf("got %s, want %s", got, tt.patch)
			}
		})
	}
}
