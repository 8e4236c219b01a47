package cache

import (
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/cache/view"
)

const urlPodsOfNode = urlPods + "?fieldSelector=spec.nodeName%3Dn"

// podWithUID returns podJSON with a UID.
func podWithUID(name, version, uid string) string {
	return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"` + name + `","namespace":"ns","uid":"` + uid + `","resourceVersion":"` + version + `"}}`
}

// A pod that the list of its node no longer has was deleted. A copy that was read after the list
// before is not served, but another pod of the same name is.
func TestAPodThatLeavesTheListOfItsNodeIsGone(t *testing.T) {
	doubtful := []string{"404", view.ErrDoubtful.Error()}
	for name, test := range map[string]struct {
		read string
		want []string
	}{
		"read at a later version":  {podJSON("a", "105"), doubtful},
		"read at the same version": {podJSON("a", "90"), doubtful},
		"made again elsewhere":     {podWithUID("a", "105", "another"), []string{"a=105"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream()
			u.shows("100", podJSON("a", "90"))
			c := startCache(t, u)
			get(t, c, urlPodsOfNode)
			u.onText("get", http.StatusOK, test.read)
			get(t, c, urlPodA)
			u.shows("120")
			get(t, c, urlPodsOfNode)
			u.goAway()
			if got := get(t, c, urlPodA); !slices.Contains(test.want, got) {
				t.Errorf("offline: %q, want one of %q", got, test.want)
			}
		})
	}
}

// A pod that is deleted without a grace period is first stored as terminating. If a write comes
// before the pod is removed, the apiserver removes it, and answers with the pod as written. This
// pod must not be served.
func TestAWriteThatCompletesADeletionLeavesNoCopy(t *testing.T) {
	const ended = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","uid":"u-a","resourceVersion":"95",
"deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0},"status":{"phase":"Running"}}`
	for name, url := range map[string]string{"of the pod": urlPodA, "of its status": urlPodA + "/status"} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream()
			u.onText("get", http.StatusOK, podJSON("a", "90"))
			c := startCache(t, u)
			get(t, c, urlPodA)
			u.onText("get", http.StatusOK, ended)
			res, err := c.RoundTrip(newRequest(t.Context(), http.MethodPatch, url))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Fatal(err)
			}
			u.goAway()
			if got := get(t, c, urlPodA); got != "404" {
				t.Errorf("offline: %q, want 404", got)
			}
		})
	}
}
