package cache

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// Copies of single objects are bounded. One that had to go is not taken for an object that never was, whatever an older
// list says.
func TestACopyThatHadToGoIsNoAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		const n = 1100 // more than are kept
		u.on("get", func(r *http.Request) *http.Response {
			name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
			return respond(http.StatusOK, podJSON(name, "110"))
		})
		for i := range n {
			get(t, c, modelURL(fmt.Sprint("p", i)))
			time.Sleep(time.Millisecond)
		}
		u.goAway()
		lost := 0
		for i := range n {
			switch name := fmt.Sprint("p", i); get(t, c, modelURL(name)) {
			case name + "=110":
			case "404":
				t.Fatalf("copy %d is said not to be there", i)
			default:
				lost++
			}
		}
		if lost == 0 || lost > n/2 {
			t.Errorf("%d copies of %d had to go", lost, n)
		}
	})
}
