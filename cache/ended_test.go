package cache

import (
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/cache/view"
)

const urlPodsOfNode = urlPods + "?fieldSelector=spec.nodeName%3Dn"

// podWithUID is podJSON of an object that has a UID of its own.
func podWithUID(name, version, uid string) string {
	return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"` + name + `","namespace":"ns","uid":"` + uid + `","resourceVersion":"` + version + `"}}`
}

// A pod that a list of its node does not have any more was deleted. What was read of it
// after the list before is no answer, either; another pod of that name is.
func TestAPodThatItsNodeDoesNotListAnyMoreIsGone(t *testing.T) {
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

// A pod that is deleted without a grace period is stored once more, as one that is being
// deleted. A write that comes before it is removed has the apiserver remove it, and is
// answered with the pod as the write would have made it: nobody may be shown that pod.
func TestAWriteThatCarriesOutADeletionLeavesNoCopy(t *testing.T) {
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
