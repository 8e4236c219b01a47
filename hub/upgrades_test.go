package hub

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// Neither the end of the hub nor a kill keeps an owner's decision from the cloud: it is on disk before
// the answer.
func TestAHoldIsKeptAndReported(t *testing.T) {
	patches := make(chan string, 10) // of the pod's status; the test reads two
	n := newNode(t, nil)
	n.api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const meta = `"metadata":{"name":"p","namespace":"d","uid":"u","resourceVersion":"1","ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"p","uid":"o","controller":true}]},"spec":{"nodeName":"n1"}`
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case r.Method == http.MethodPatch:
			body, _ := io.ReadAll(r.Body)
			patches <- r.URL.Path + " " + string(body)
			http.NotFound(w, r) // the pod does not change, so it is reported again
		case q.Has("watch"):
			if q.Has("sendInitialEvents") {
				fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",%s}}`, meta)
				fmt.Fprint(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case r.URL.Path == "/api/v1/pods":
			fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{%s}]}`, meta)
		}
	})
	_, stop := n.start(t)
	hold := "http://" + n.config.ServeAddress + nodeapi.HoldPath("d", "p")
	res, err := http.Post(hold+"?for=2h&reason=driving", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), "Hold of pod d/p until ") {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	for _, when := range []string{"at once", "after a restart"} {
		var got string
		select {
		case got = <-patches:
		case <-time.After(time.Minute):
			t.Fatalf("%s, the cloud does not get the hold", when)
		}
		if !strings.HasPrefix(got, "/api/v1/namespaces/d/pods/p/status ") || !strings.Contains(got, `"uid":"u"`) || !strings.Contains(got, `apps.openyurt.io/upgrade-hold`) || !strings.Contains(got, "driving") {
			t.Errorf("%s, the cloud gets %s", when, got)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for len(patches) > 0 {
			<-patches
		}
		_, stop = n.start(t)
		if code, body := fetch(t, http.DefaultClient, hold); code != http.StatusOK || !strings.Contains(body, "driving") {
			t.Errorf("%s: %d %s", when, code, body)
		}
	}
}
