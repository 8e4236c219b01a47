package hub

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
)

// podCloud has one pod, d/p, for the node's hub to follow.
type podCloud struct {
	revisions chan string // the pod has the first at once, and each further one once the test sends it
	patches   chan string // of the pod's status, which they do not change
}

func (c *podCloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pod := func(version int, revision string) string {
		return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"d","uid":"u","resourceVersion":"%d",
"labels":{"controller-revision-hash":%q},"annotations":{"apps.openyurt.io/upgrade-policy":"{\"maxHold\":86400000000000,\"rollback\":true,\"history\":1}"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"p","uid":"o","controller":true}]},
"spec":{"nodeName":"n1","containers":[{"name":"c","image":"app:%s"}]},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"PodNeedUpgrade","status":"True","message":"controllerrevision: v3"}]}}`, version, revision, revision)
	}
	const first = "v1"
	w.Header().Set("Content-Type", "application/json")
	switch q := r.URL.Query(); {
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body)
		select {
		case c.patches <- r.URL.Path + " " + string(body):
		default: // the test has what it needs
		}
		http.NotFound(w, r)
	case q.Has("watch"):
		if q.Has("sendInitialEvents") {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, pod(1, first))
			fmt.Fprint(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		}
		for version := 2; ; version++ {
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case revision := <-c.revisions:
				fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`, pod(version, revision))
			}
		}
	case r.URL.Path == "/api/v1/pods":
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, pod(1, first))
	}
}

// awaitPatch returns a patch that has words.
func (c *podCloud) awaitPatch(t *testing.T, words string) string {
	t.Helper()
	for patience := time.After(time.Minute); ; {
		select {
		case got := <-c.patches:
			if strings.Contains(got, words) {
				return got
			}
		case <-patience:
			t.Fatalf("the cloud does not get %s", words)
		}
	}
}

func newPodNode(t *testing.T) (*node, *podCloud) {
	c := &podCloud{revisions: make(chan string), patches: make(chan string, 1)} // one that nobody has read
	n := newNode(t, nil)
	n.api.Config.Handler = c
	return n, c
}

// An upgrade that waits is shown to the cloud, and survives a restart of the hub without it. With
// --queue-upgrades=false it can be seen and cancelled, and no other is accepted.
func TestUpgradesWait(t *testing.T) {
	n, cloud := newPodNode(t)
	h, stop := n.start(t)
	upgrade := api.UpgradePath("d", "p")
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if code, body := n.ask(t, http.MethodPost, upgrade+"?at="+at, ""); code != http.StatusAccepted || body != "Upgrade of pod d/p scheduled for "+at+"\n" {
		t.Fatalf("%d %s", code, body)
	}
	if got := cloud.awaitPatch(t, at); !strings.HasPrefix(got, "/api/v1/namespaces/d/pods/p/status ") || !strings.Contains(got, `"uid":"u"`) || !strings.Contains(got, "apps.openyurt.io/upgrade-waiting") {
		t.Errorf("the cloud gets %s", got)
	}
	n.loseCloud(t, h)
	if code, body := n.ask(t, http.MethodPost, upgrade, ""); code != http.StatusAccepted || body != "Upgrade of pod d/p queued: it starts when the cloud can be reached\n" {
		t.Errorf("%d %s", code, body)
	}
	for _, queues := range []bool{true, false} {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		n.config.QueueUpgrades = queues
		h, stop = n.start(t)
		n.awaitOffline(t, h)
		if code, body := n.ask(t, http.MethodGet, upgrade, ""); code != http.StatusOK || !strings.Contains(body, `"WaitingForCloud"`) || strings.Contains(body, "--queue-upgrades=false") == queues {
			t.Errorf("after a restart: %d %s", code, body)
		}
	}
	if code, body := n.ask(t, http.MethodPost, upgrade, ""); code != http.StatusServiceUnavailable {
		t.Errorf("with --queue-upgrades=false: %d %s", code, body)
	}
	if code, body := n.ask(t, http.MethodDelete, upgrade, ""); code != http.StatusOK || body != "Upgrade cancelled for pod d/p\n" {
		t.Errorf("with --queue-upgrades=false: %d %s", code, body)
	}
}

func TestAHoldIsKeptAndReported(t *testing.T) {
	n, cloud := newPodNode(t)
	_, stop := n.start(t)
	hold := api.HoldPath("d", "p")
	if code, body := n.ask(t, http.MethodPost, hold+"?for=2h&reason=driving", ""); code != http.StatusOK || !strings.HasPrefix(body, "Hold of pod d/p until ") {
		t.Fatalf("%d %s", code, body)
	}
	const annotation = `"apps.openyurt.io/upgrade-hold"`
	if got := cloud.awaitPatch(t, annotation); !strings.HasPrefix(got, "/api/v1/namespaces/d/pods/p/status ") || !strings.Contains(got, `"uid":"u"`) || !strings.Contains(got, "driving") {
		t.Errorf("the cloud gets %s", got)
	}
	// An upgrade that is due waits for the hold.
	upgrade, clock := api.UpgradePath("d", "p"), time.Now()
	window := clock.Add(-time.Hour).Format("15:04") + "-" + clock.Add(time.Hour).Format("15:04")
	if code, body := n.ask(t, http.MethodPost, upgrade+"?window="+window, ""); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, body)
	}
	if code, body := n.ask(t, http.MethodGet, upgrade, ""); code != http.StatusOK || !strings.Contains(body, `"Held"`) {
		t.Errorf("an upgrade of a pod on hold: %d %s", code, body)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	if code, body := n.ask(t, http.MethodGet, hold, ""); code != http.StatusOK || !strings.Contains(body, "driving") {
		t.Errorf("after a restart: %d %s", code, body)
	}
}

func TestARollbackIsReported(t *testing.T) {
	n, cloud := newPodNode(t)
	n.start(t)
	awaitHistory := func(revisions int) {
		t.Helper()
		until(t, fmt.Sprintf("the history has %d revisions", revisions), func() bool {
			_, body := n.ask(t, http.MethodGet, api.HistoryPath("d", "p"), "")
			return strings.Count(body, `"revision"`) == revisions
		})
	}
	awaitHistory(1)
	cloud.revisions <- "v2"
	// The cloud's list has v1 still, which the history shows as current.
	awaitHistory(2)
	if code, body := n.ask(t, http.MethodPost, api.RollbackPath("d", "p")+"?revision=v2", ""); code != http.StatusAccepted || body != "Rollback of pod d/p to revision v2 requested\n" {
		t.Fatalf("%d %s", code, body)
	}
	if got := cloud.awaitPatch(t, `"apps.openyurt.io/rollback"`); !strings.Contains(got, `\"revision\":\"v2\"`) || !strings.Contains(got, "PodRolledBack") {
		t.Errorf("the cloud gets %s", got)
	}
}

// A watch of the node's pods goes on while the cloud is away, which GET /pods shows, and ends as a whole when the hub
// stops.
func TestPodsAreFollowedWithoutTheCloud(t *testing.T) {
	n, _ := newPodNode(t)
	h, stop := n.start(t)
	address := "http://" + n.config.ServeAddress + api.Pods
	res, err := http.Get(address + "?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p",`) {
		t.Fatalf("got %s, %v", lines.Text(), lines.Err())
	}

	n.loseCloud(t, h)
	list, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	list.Body.Close()
	_, since := h.cloud.since()
	if got := list.Header.Get(api.OfflineSinceHeader); list.StatusCode != http.StatusOK || got != since.UTC().Format(time.RFC3339) {
		t.Errorf("%s, offline since %q, want %v", list.Status, got, since)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after the hub has stopped: %q, %v", lines.Text(), lines.Err())
	}
}
