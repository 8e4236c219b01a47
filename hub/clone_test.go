package hub

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/edgehub-io/edgehub/hub/ownnode"
	"github.com/edgehub-io/edgehub/ota/api"
)

// A copy of the node's disk that boots under the same name is found by its boot ID, which takes turns with ours, and is told of
// everywhere, once; nothing is refused for it.
func TestACloneOfTheNodeIsToldOf(t *testing.T) {
	const node, lease = "/api/v1/nodes/n1", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
	boot := ownnode.BootID()
	if boot == "" {
		t.Skip("NOT RUN: this kernel has no boot ID")
	}
	var version atomic.Int64
	var events atomic.Int64
	var event, condition atomic.Pointer[string]
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body)
		text, id := string(body), boot
		switch {
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events"):
			events.Add(1)
			event.Store(&text)
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(body)
			return
		case r.URL.Path == lease:
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
			return
		case r.URL.Path == node+"/status" && strings.Contains(text, string(api.ClonedCondition)):
			condition.Store(&text)
		case r.URL.Path == node && r.Method == http.MethodGet:
			id = "1b4e28ba-2fa1-11d2-883f-0016d3cca427" // what the other one has written meanwhile
		}
		fmt.Fprintf(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"%d"},"status":{"nodeInfo":{"bootID":%q}}}`, version.Add(1), id)
	})
	h, _ := n.start(t)
	send := func(method, path string, want int) {
		t.Helper()
		code, body := sendTo(t, http.DefaultClient, method, "http://"+n.config.ProxyAddress+path, "{}", "Content-Type", "application/strategic-merge-patch+json", "User-Agent", "kubelet/v1.34.0")
		if code != want {
			t.Fatalf("%s %s: %d %s", method, path, code, body)
		}
	}
	known := func() string {
		t.Helper()
		_, text := n.ask(t, http.MethodGet, api.Cache, "")
		var state struct{ Clone string }
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			t.Fatal(err)
		}
		return state.Clone
	}
	send(http.MethodPatch, node+"/status", 200)
	if got := known(); got != "" {
		t.Fatalf("a node alone: %s", got)
	}
	for range 3 { // kubelet's loop
		send(http.MethodGet, node, 200)
		send(http.MethodPatch, node+"/status", 200)
		send(http.MethodPut, lease, 409)
	}
	if got := known(); !strings.Contains(got, "another machine runs as node n1") || !strings.Contains(got, boot) || h.state.status() != got {
		t.Errorf("the hub knows %q, and its status is %q", got, h.state.status())
	}
	if _, metrics := n.ask(t, http.MethodGet, api.Metrics, ""); !strings.Contains(metrics, "\nedgehub_node_cloned 1\n") {
		t.Error("the metric does not say so")
	}
	send(http.MethodGet, node, 200) // has no condition
	until(t, "an Event and a condition are written", func() bool { return event.Load() != nil && condition.Load() != nil })
	var about struct {
		InvolvedObject struct{ Kind, Name string }
		Type, Reason   string
	}
	if err := json.Unmarshal([]byte(*event.Load()), &about); err != nil || about.InvolvedObject.Kind != "Node" || about.InvolvedObject.Name != "n1" ||
		about.Type != "Warning" || about.Reason != ownnode.ClonedReason || events.Load() != 1 {
		t.Errorf("%d Events, the last one %s", events.Load(), *event.Load())
	}
	var patch struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason string }
		}
	}
	if err := json.Unmarshal([]byte(*condition.Load()), &patch); err != nil || len(patch.Status.Conditions) != 1 || patch.Status.Conditions[0].Status != "True" {
		t.Errorf("the condition: %s", *condition.Load())
	}
}
