package cache

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/query"
)

func TestWatchesThatAnObjectLeavesOnlyByItsDeletion(t *testing.T) {
	for _, test := range []struct {
		resource, labels, fields string
		want                     bool
	}{
		{"pods", "", "", true},
		{"pods", "", "metadata.name=a", true},
		{"pods", "", "metadata.namespace=ns,metadata.name!=a", true},
		{"pods", "", "spec.nodeName=n", true},
		{"pods", "", "spec.nodeName=", false},
		{"pods", "", "spec.nodeName!=n", false},
		{"pods", "", "spec.nodeName=n,status.phase=Running", false},
		{"things", "", "spec.nodeName=n", false},
		{"pods", "l=red", "", false},
		{"pods", "", "(", false},
	} {
		k := &query.Key{Version: "v1", Resource: test.resource, Labels: test.labels, Fields: test.fields}
		if got := k.Lasting(); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// A newer copy of only the metadata does not make an older whole object an answer.
func TestAnOlderCopyIsNotServedIfTheNewestCannotBeConverted(t *testing.T) {
	u, c := startListed(t, "100", podJSON("a", "50"))
	u.on("get", func(*http.Request) *http.Response {
		return respond(http.StatusOK, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"ns","uid":"u-a","resourceVersion":"60"}}`)
	})
	ask(context.WithValue(t.Context(), acceptKey{}, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"), t, c, http.MethodGet, urlPodA)
	u.goAway()
	if got := get(t, c, urlPodA); !strings.Contains(got, derived.ErrOnlyMetadata.Error()) {
		t.Errorf("a whole object is read: %q", got)
	}
}

// Clients have seen an event that the view cannot apply yet: an older copy is not served until the
// view has caught up.
func TestAnOlderCopyIsNotServedWhileTheViewIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		get(t, c, urlPodA)
		u.onText("list", http.StatusInternalServerError, "{}") // it cannot catch up
		startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=150")
		send(t, <-u.feeds, podEvent("MODIFIED", "a", "160"))
		synctest.Wait()
		u.goAway()
		if got := get(t, c, urlPodA); got != "a=160" { // which was kept apart
			t.Errorf("GET while the view is behind: %q", got)
		}
		u.comeBack()
		u.shows("170", podJSON("a", "160"))
		get(t, c, urlPods)
		u.goAway()
		if got := get(t, c, urlPodA); got != "a=160" {
			t.Errorf("GET after the view has caught up: %q", got)
		}
	})
}
