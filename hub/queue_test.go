package hub

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/proxy/proxytest"
)

// upgradableCloud has one pod, d/p, that needs an upgrade. It sends the status patches that it gets.
type upgradableCloud chan string

func (c upgradableCloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"d","uid":"u","resourceVersion":"1",
"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"p","uid":"o","controller":true}]},
"spec":{"nodeName":"n1"},"status":{"conditions":[{"type":"PodNeedUpgrade","status":"True","message":"controllerrevision: new"}]}}`
	w.Header().Set("Content-Type", "application/json")
	switch q := r.URL.Query(); {
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body)
		select {
		case c <- r.URL.Path + " " + string(body):
		default: // the test has what it needs
		}
		http.NotFound(w, r)
	case q.Has("sendInitialEvents"):
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`, pod)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case r.URL.Path == "/api/v1/pods":
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, pod)
	}
}

func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// An upgrade that waits is shown to the cloud, and survives a restart of the hub without it. With
// --queue-upgrades=false it can be seen and cancelled, and no other is accepted.
func TestUpgradesWait(t *testing.T) {
	cloud := make(upgradableCloud, 1) // one that the test has not read
	n := newNode(t, nil)
	n.api.Config.Handler = cloud
	h, stop := n.start(t)
	upgrade := "http://" + n.config.ServeAddress + nodeapi.UpgradePath("d", "p")
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if code, body := ask(t, http.MethodPost, upgrade+"?at="+at); code != http.StatusAccepted || body != "Upgrade of pod d/p scheduled for "+at+"\n" {
		t.Fatalf("%d %s", code, body)
	}
	for got, patience := "", time.After(time.Minute); !strings.Contains(got, at); {
		select {
		case got = <-cloud:
			if !strings.HasPrefix(got, "/api/v1/namespaces/d/pods/p/status ") || !strings.Contains(got, `"uid":"u"`) || !strings.Contains(got, "apps.openyurt.io/upgrade-waiting") {
				t.Errorf("the cloud gets %s", got)
			}
		case <-patience:
			t.Fatal("the cloud does not get that an upgrade waits")
		}
	}

	away := func() {
		t.Helper()
		proxytest.Until(t, "the hub knows that the cloud is away", func() bool {
			fetch(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/version")
			return h.offline() != ""
		})
	}
	n.api.CloseClientConnections()
	n.api.Close()
	away()
	if code, body := ask(t, http.MethodPost, upgrade); code != http.StatusAccepted || body != "Upgrade of pod d/p queued: it starts when the cloud can be reached\n" {
		t.Errorf("%d %s", code, body)
	}
	for _, queues := range []bool{true, false} {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		n.config.QueueUpgrades = queues
		h, stop = n.start(t)
		away()
		if code, body := ask(t, http.MethodGet, upgrade); code != http.StatusOK || !strings.Contains(body, `"WaitingForCloud"`) || strings.Contains(body, "--queue-upgrades=false") == queues {
			t.Errorf("after a restart: %d %s", code, body)
		}
	}
	if code, body := ask(t, http.MethodPost, upgrade); code != http.StatusServiceUnavailable {
		t.Errorf("with --queue-upgrades=false: %d %s", code, body)
	}
	if code, body := ask(t, http.MethodDelete, upgrade); code != http.StatusOK || body != "Upgrade cancelled for pod d/p\n" {
		t.Errorf("with --queue-upgrades=false: %d %s", code, body)
	}
}
